package upstream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wire counts writes, and fails them when broken is set.
type wire struct {
	net.Conn
	writes atomic.Int64
	broken atomic.Bool
}

var errCable = errors.New("the cable was pulled")

func (c *wire) Write(p []byte) (int, error) {
	c.writes.Add(1)
	if c.broken.Load() {
		n, _ := c.Conn.Write(p[:len(p)/2])
		return n, errCable
	}
	return c.Conn.Write(p)
}

// securedPair returns a connection as net/http writes requests to it, what is
// below it, and the server's side.
func securedPair(t *testing.T) (*clearConn, *wire, *tls.Conn) {
	t.Helper()
	root := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	below := &wire{Conn: dialled}
	c := newConn(below, newPool(newUpstream(t, Options{Roots: roots}), "s1"))
	client := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "good.test"})
	server := tls.Server(accepted, &tls.Config{Certificates: []tls.Certificate{root.issue(t, nil)}})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	below.writes.Store(0)
	return newClearConn(client, c), below, server
}

// boosted sends so much that TLS no longer makes its records short.
func boosted(t *testing.T, c *clearConn, below *wire, server *tls.Conn) {
	t.Helper()
	const enough = 256 << 10
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, enough))
		sent <- err
	}()
	_, err := io.ReadFull(server, make([]byte, enough))
	if err := errors.Join(err, <-sent); err != nil {
		t.Fatal(err)
	}
	below.writes.Store(0)
}

// TestABodyIsSentTogether: of what is read at once all records go out with one
// write, before more is read, and arrive as they are.
func TestABodyIsSentTogether(t *testing.T) {
	c, below, server := securedPair(t)
	boosted(t, c, below, server)
	body := make([]byte, 500<<10)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	rest, reads := body, 0
	copied := make(chan error, 1)
	go func() {
		n, err := c.ReadFrom(readerFunc(func(p []byte) (int, error) {
			if n := below.writes.Load(); n != int64(reads) {
				t.Errorf("%d writes after %d reads", n, reads)
			}
			if len(rest) == 0 {
				return 0, io.EOF
			}
			reads++
			n := copy(p, rest)
			rest = rest[n:]
			return n, nil
		}))
		if err == nil && n != int64(len(body)) {
			err = io.ErrShortWrite
		}
		copied <- err
	}()
	got := make([]byte, len(body))
	_, err := io.ReadFull(server, got)
	if err := errors.Join(err, <-copied); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, body) {
		t.Error("other bytes arrived")
	}
	if most := 2 + 500/64; reads > most {
		t.Errorf("%d reads of 500 KiB, want %d", reads, most)
	}
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestABodyThatEndsInAnErrorIsNotWhole: what came before the error was sent, and
// the error is told.
func TestABodyThatEndsInAnErrorIsNotWhole(t *testing.T) {
	c, _, server := securedPair(t)
	n, err := c.ReadFrom(readerFunc(func(p []byte) (int, error) { return copy(p, "hello"), errCable }))
	if n != 5 || !errors.Is(err, errCable) {
		t.Errorf("%d, %v", n, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestHeldRecordsWaitForRelease: and no longer, if they are many.
func TestHeldRecordsWaitForRelease(t *testing.T) {
	c, below, server := securedPair(t)
	boosted(t, c, below, server)
	r := &c.under.records
	var want bytes.Buffer
	write := func(n int) {
		p := bytes.Repeat([]byte{byte(n)}, n)
		want.Write(p)
		if k, err := c.Write(p); k != n || err != nil {
			t.Fatalf("%d of %d, %v", k, n, err)
		}
	}
	var reading sync.WaitGroup
	var got bytes.Buffer
	reading.Go(func() { _, _ = io.Copy(&got, server) })
	r.Hold()
	write(100)
	write(4 << 10)
	write(60 << 10)
	if n := below.writes.Load(); n != 0 {
		t.Errorf("%d writes before the release", n)
	}
	if err := r.Release((*sending)(c.under)); err != nil {
		t.Fatal(err)
	}
	if n := below.writes.Load(); n != 1 {
		t.Errorf("%d writes, want one", n)
	}
	r.Hold()
	for range 40 {
		write(30 << 10)
		if r.gathered != nil && len(*r.gathered) > recordsSize {
			t.Errorf("%d bytes are held", len(*r.gathered))
		}
	}
	if err := r.Release((*sending)(c.under)); err != nil {
		t.Fatal(err)
	}
	write(1)
	c.Close()
	reading.Wait()
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes of %d arrived, or others", got.Len(), want.Len())
	}
}

// TestNothingFollowsAGap: after a write that failed in the middle of gathered
// records nothing else is sent, and nothing counts as sent.
func TestNothingFollowsAGap(t *testing.T) {
	c, below, server := securedPair(t)
	go func() { _, _ = io.Copy(io.Discard, server) }()
	below.broken.Store(true)
	if n, err := c.Write(make([]byte, 40<<10)); n != 0 || !errors.Is(err, errCable) {
		t.Errorf("%d, %v", n, err)
	}
	below.broken.Store(false)
	before := below.writes.Load()
	for _, size := range []int{1, 40 << 10} {
		if _, err := c.Write(make([]byte, size)); !errors.Is(err, errCable) {
			t.Errorf("%d bytes more: %v", size, err)
		}
	}
	if n := below.writes.Load(); n != before {
		t.Errorf("%d writes behind a gap", n-before)
	}
}

// TestCloseBreaksAWriteOff: a write that the peer does not take holds no Close up.
func TestCloseBreaksAWriteOff(t *testing.T) {
	c, _, _ := securedPair(t)
	var started atomic.Int64
	ended := make(chan error, 1)
	go func() {
		_, err := c.ReadFrom(readerFunc(func(p []byte) (int, error) { started.Add(1); return len(p), nil }))
		ended <- err
	}()
	for before := int64(-1); before != started.Load(); time.Sleep(200 * time.Millisecond) { // until it stands still
		before = started.Load()
	}
	start := time.Now()
	_ = c.Close()
	if err := <-ended; err == nil {
		t.Error("the write did not fail")
	}
	if took := time.Since(start); took > 3*time.Second { // crypto/tls would wait 5 s
		t.Errorf("it took %v", took)
	}
}
