//go:build linux

package load

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// patience bounds every connection: a peer that hangs is an error, not the end
// of the benchmark.
const patience = 2 * time.Minute

// dialer opens connections to a target.
type dialer struct {
	job     Job
	roots   *x509.CertPool
	cache   tls.ClientSessionCache
	mu      sync.Mutex
	address map[string]string // of names that were looked up
	again   atomic.Int64
}

func newDialer(j Job) (*dialer, error) {
	d := &dialer{job: j, address: map[string]string{}}
	if j.Resume {
		d.cache = tls.NewLRUClientSessionCache(1024)
	}
	if j.Roots != "" {
		pem, err := os.ReadFile(j.Roots)
		if err != nil {
			return nil, err
		}
		d.roots = x509.NewCertPool()
		if !d.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", j.Roots)
		}
	}
	return d, nil
}

func (d *dialer) resumed() int64 {
	if d == nil {
		return 0
	}
	return d.again.Load()
}

// where is the address that the i-th connection, to host, is made to. A name
// has another address in each namespace.
func (d *dialer) where(host string, i int) (string, error) {
	if d.job.Target.Mode != ByName {
		return d.job.Target.Address, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := host
	if n := len(d.job.Spaces); n > 0 {
		key = host + " " + d.job.Spaces[i%n]
	}
	if known := d.address[key]; known != "" {
		return known, nil
	}
	var err error
	for range lookups {
		var address string
		if address, err = d.lookUp(host, i); err == nil {
			d.address[key] = address
			return address, nil
		}
	}
	return "", err
}

// lookups is how often a name is asked for: datagrams may be lost.
const lookups = 5

// lookUp asks for a name where the i-th connection starts.
func (d *dialer) lookUp(host string, i int) (string, error) {
	m := new(dns.Msg)
	m.SetQuestion(host+".", dns.TypeA)
	var a *dns.Msg
	err := d.in(i, func() (err error) {
		a, _, err = (&dns.Client{Timeout: 2 * time.Second}).Exchange(m, d.job.Target.DNS)
		return err
	})
	if err != nil {
		return "", err
	}
	for _, rr := range a.Answer {
		if r, ok := rr.(*dns.A); ok {
			return net.JoinHostPort(r.A.String(), "443"), nil
		}
	}
	return "", fmt.Errorf("%s has no address here: %s", host, dns.RcodeToString[a.Rcode])
}

// in runs f in the i-th of the job's namespaces, if it has any.
func (d *dialer) in(i int, f func() error) error {
	if len(d.job.Spaces) == 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		space, err := os.Open(d.job.Spaces[i%len(d.job.Spaces)])
		if err == nil {
			defer space.Close()
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// raw is a connection on which a handshake with host can be made.
func (d *dialer) raw(host string, i int) (c net.Conn, err error) {
	address, err := d.where(host, i)
	if err != nil {
		return nil, err
	}
	err = d.in(i, func() error {
		c, err = (&net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1}).Dial("tcp", address)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if d.job.Target.Mode != ByConnect {
		return c, nil
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	// After the answer the other side says nothing until it is spoken to.
	status, _, _, err := readHead(bufio.NewReaderSize(c, 1024))
	if err == nil && status != 200 {
		err = fmt.Errorf("CONNECT: status %d", status)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// secure is a connection after its handshake.
func (d *dialer) secure(host string, i int, protocol string) (*tls.Conn, error) {
	raw, err := d.raw(host, i)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: d.roots, InsecureSkipVerify: d.roots == nil,
		NextProtos: []string{protocol}, ClientSessionCache: d.cache, CurvePreferences: []tls.CurveID{tls.X25519}})
	if err := c.Handshake(); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	if c.ConnectionState().DidResume {
		d.again.Add(1)
	}
	return c, nil
}

// conn is a connection that speaks HTTP/1.1.
type conn struct {
	*tls.Conn
	br *bufio.Reader
}

func (d *dialer) open(host string, i, buffer int) (*conn, error) {
	c, err := d.secure(host, i, "http/1.1")
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReaderSize(c, buffer)}, nil
}

func (c *conn) close() {
	if c != nil {
		_ = c.Conn.Close() // the other side may have gone
	}
}

// request is a GET as bytes.
func (d *dialer) request(host, path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: bench/1\r\nAccept: */*\r\n" + d.job.Header + "\r\n")
}

// errClosing says that the answer is whole and the connection is not kept.
var errClosing = errors.New("the connection is not kept")

// do sends a request and reads its answer. It returns the bytes of the body.
func (c *conn) do(request []byte) (int64, error) {
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	status, length, closing, err := readHead(c.br)
	if err != nil {
		return 0, err
	}
	if length < 0 {
		length, err = discardChunks(c.br)
	} else {
		err = discard(c.br, length)
	}
	switch {
	case err != nil:
		return 0, err
	case status != 200:
		return length, fmt.Errorf("status %d", status)
	case closing:
		return length, errClosing
	}
	return length, nil
}
