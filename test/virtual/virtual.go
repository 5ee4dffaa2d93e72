// Package virtual has what tests that run a gateway in their own process put
// in the place of a capture: connections whose original destination is made
// up, and a store that keeps nothing for longer than the test.
package virtual

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"sallyport/certs"
)

// Listener hands out connections that Dial made.
type Listener struct {
	front   net.Listener // where both sides of a connection are made
	pairing sync.Mutex
	conns   chan net.Conn
	done    chan struct{}
	once    sync.Once
}

// Listen returns a Listener that is closed when the test ends.
func Listen(t testing.TB) *Listener {
	t.Helper()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Listener{front: front, conns: make(chan net.Conn), done: make(chan struct{})}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Dial opens a connection that is accepted as one to dst. Once the listener is
// closed it is one that the other side has closed. A dial that ctx ends may
// leave a connection behind that no one holds: what is accepted is looked at
// until it is the other end.
func (l *Listener) Dial(ctx context.Context, dst netip.AddrPort) (*net.TCPConn, error) {
	l.pairing.Lock()
	defer l.pairing.Unlock()
	client, err := new(net.Dialer).DialContext(ctx, "tcp", l.front.Addr().String())
	if err != nil {
		return nil, err
	}
	server, err := l.front.Accept()
	for err == nil && server.RemoteAddr().String() != client.LocalAddr().String() {
		_ = server.Close()
		server, err = l.front.Accept()
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	select {
	case l.conns <- &conn{server.(*net.TCPConn), net.TCPAddrFromAddrPort(dst)}:
	case <-l.done:
		err = server.Close()
	}
	return client.(*net.TCPConn), err
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. It may be called again.
func (l *Listener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.done)
		err = l.front.Close()
	})
	return err
}

// Addr is of no meaning.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }

// conn is an accepted connection with its original destination.
type conn struct {
	*net.TCPConn
	dst *net.TCPAddr
}

// LocalAddr returns the destination.
func (c *conn) LocalAddr() net.Addr { return c.dst }

// Store keeps bytes under a key, in memory.
type Store struct {
	mu sync.Mutex
	m  map[string]map[string][]byte
}

// NewStore returns an empty Store.
func NewStore() *Store { return &Store{m: map[string]map[string][]byte{}} }

// Put keeps v.
func (s *Store) Put(bucket string, k, v []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m[bucket] == nil {
		s.m[bucket] = map[string][]byte{}
	}
	s.m[bucket][string(k)] = slices.Clone(v)
	return nil
}

// PutAll keeps all pairs.
func (s *Store) PutAll(bucket string, pairs map[string][]byte) error {
	for k, v := range pairs {
		if err := s.Put(bucket, []byte(k), v); err != nil {
			return err
		}
	}
	return nil
}

// Delete drops what is kept under k.
func (s *Store) Delete(bucket string, k []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m[bucket], string(k))
	return nil
}

// ForEach calls fn for all that is kept in bucket, until it fails.
func (s *Store) ForEach(bucket string, fn func(k, v []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range s.m[bucket] {
		if err := fn([]byte(k), v); err != nil {
			return err
		}
	}
	return nil
}

// Authority returns a fresh certificate authority and a pool that trusts it.
func Authority(t testing.TB) (*certs.CA, *x509.CertPool) {
	t.Helper()
	ca, err := certs.LoadOrCreate(t.TempDir(), certs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	return ca, pool
}
