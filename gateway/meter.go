package gateway

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// meter is the sandbox's side of a connection: it counts bytes, gives back
// what was peeked, and tells once when it is closed.
type meter struct {
	net.Conn
	in, out atomic.Int64 // bytes read from and written to the sandbox
	used    *usage       // of the sandbox; nil until it is known who speaks

	held    []byte          // peeked, to be read again; used by one reader at a time
	raw     syscall.RawConn // of Conn, of whoever reads; nil before it was asked for
	stall   time.Duration   // bounds each write; 0 does not. Set before the connection is shared
	both    upstream.Both   // of Conn, of whoever reads
	began   time.Time       // by the clock that is never set
	bounded atomic.Int64    // the deadline that Write has set last, in nanoseconds since then; 0: somebody else may have set one
	revoked atomic.Pointer[policy.Decision]

	mu     sync.Mutex
	closed bool
	after  []func() // what is to be told of the close
}

func newMeter(c net.Conn) *meter { return &meter{Conn: c, began: time.Now()} }

const peekSize = 1 << 10

// peek waits for the first bytes, at most wait, and keeps them for Read.
func (m *meter) peek(wait time.Duration) ([]byte, error) {
	if len(m.held) > 0 {
		return m.held, nil
	}
	if err := m.Conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}
	b := make([]byte, peekSize)
	n, err := m.Conn.Read(b)
	m.took(n)
	m.held = b[:n]
	return m.held, errors.Join(err, m.Conn.SetReadDeadline(time.Time{}))
}

// peekOn reads on behind what was peeked until enough says that it does, it is
// most bytes long, or wait is over.
func (m *meter) peekOn(enough func([]byte) bool, most int, wait time.Duration) []byte {
	_ = m.Conn.SetReadDeadline(time.Now().Add(wait)) // an error comes again from Read
	for b := make([]byte, peekSize); !enough(m.held) && len(m.held) < most; {
		n, err := m.Conn.Read(b)
		m.took(n)
		if m.held = append(m.held, b[:n]...); err != nil {
			break
		}
	}
	_ = m.Conn.SetReadDeadline(time.Time{}) // likewise
	return m.held
}

func (m *meter) took(n int) {
	m.in.Add(int64(n))
	if m.used != nil {
		m.used.sent.Add(int64(n))
	}
}

func (m *meter) gave(n int) {
	m.out.Add(int64(n))
	if m.used != nil {
		m.used.received.Add(int64(n))
	}
}

// unread puts bytes that were read before what is still to come.
func (m *meter) unread(b []byte) { m.held = b }

func (m *meter) Read(p []byte) (int, error) {
	if len(m.held) > 0 {
		n := copy(p, m.held)
		if m.held = m.held[n:]; len(m.held) == 0 {
			m.held = nil
		}
		return n, nil
	}
	n, err := m.Conn.Read(p)
	m.took(n)
	return n, err
}

// ReadBoth implements upstream.Arriving.
func (m *meter) ReadBoth(p []byte, behind upstream.Lender, wait bool) (int, error) {
	if len(m.held) > 0 {
		return m.Read(p)
	}
	n, err := m.both.Read(m.Conn, m.socket(), p, behind, wait)
	m.took(n)
	return n, err
}

func (m *meter) Write(p []byte) (int, error) {
	m.bound()
	n, err := m.Conn.Write(p)
	m.gave(n)
	return n, err
}

// bound sets the deadline of a write, unless one before has left it enough: a
// sixteenth less than stall is as good, and setting it costs.
func (m *meter) bound() {
	if m.stall <= 0 {
		return
	}
	now := time.Since(m.began)
	if left := time.Duration(m.bounded.Load()) - now; left > m.stall-m.stall/16 && left <= m.stall {
		return
	}
	_ = m.Conn.SetWriteDeadline(m.began.Add(now + m.stall)) // an error comes again from Write
	m.bounded.Store(int64(now + m.stall))
}

// SetWriteDeadline implements net.Conn. The next write has its own deadline.
func (m *meter) SetWriteDeadline(t time.Time) error {
	m.bounded.Store(0)
	return m.Conn.SetWriteDeadline(t)
}

// SetDeadline is SetWriteDeadline, and the same for reading.
func (m *meter) SetDeadline(t time.Time) error {
	m.bounded.Store(0)
	return m.Conn.SetDeadline(t)
}

// Untaken is how many bytes were written that the client's kernel has not taken.
func (m *meter) Untaken() int {
	c, ok := m.Conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0 // it is closed
	}
	return upstream.Untaken(raw)
}

// Waiting is how many bytes have at least arrived that were not read yet.
func (m *meter) Waiting() int {
	raw := m.socket()
	if raw == nil {
		return 0
	}
	return upstream.Waiting(raw)
}

// socket is that of Conn, or nil if it is not one.
func (m *meter) socket() syscall.RawConn {
	if m.raw == nil {
		if c, ok := m.Conn.(syscall.Conn); ok {
			m.raw, _ = c.SyscallConn() // of a closed one every use fails
		}
	}
	return m.raw
}

// CloseWrite half-closes where the connection can.
func (m *meter) CloseWrite() error {
	if c, ok := m.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// whenClosed has f called once, when the connection is closed: at once if it
// is already. What was given last is called first.
func (m *meter) whenClosed(f func()) {
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.after = append(m.after, f)
	}
	m.mu.Unlock()
	if closed {
		f()
	}
}

// Close closes the connection and, the first time, tells who asked to know.
func (m *meter) Close() error {
	err := m.Conn.Close()
	m.mu.Lock()
	m.closed = true
	after := m.after
	m.after = nil
	m.mu.Unlock()
	for _, f := range slices.Backward(after) {
		f()
	}
	return err
}

// reset closes with RST, so that the client fails at once.
func (m *meter) reset() {
	if c, ok := m.Conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0) // fails only on a connection that is gone
	}
	_ = m.Close()
}

// mark notes why a connection is no longer allowed.
func (m *meter) mark(why policy.Decision) { m.revoked.CompareAndSwap(nil, &why) }

// revoke resets a connection that policy no longer allows.
func (m *meter) revoke(why policy.Decision) {
	m.mark(why)
	m.reset()
}

var _ io.ReadWriteCloser = (*meter)(nil)
