package upstream

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// questions are those of one lookup. Go's resolver asks for A and AAAA at once
// and dials for each, and again for one that it repeats. To open and close a
// socket costs more than to ask over it, so here they share one for each server,
// whose port is the lookup's own.
type questions struct {
	server string // "": the system's

	mu      sync.Mutex
	over    bool
	sockets []*nameSocket
	readers sync.WaitGroup
}

// lookup asks for the addresses of an absolute name.
func (q *questions) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	// The resolver itself reads on until its own timeout when the question has
	// been given up.
	defer q.end()
	r := net.Resolver{PreferGo: true, Dial: q.dial}
	return r.LookupNetIP(ctx, "ip", name)
}

// dial implements net.Resolver's Dial, which names a server of the system.
func (q *questions) dial(ctx context.Context, network, system string) (net.Conn, error) {
	server := q.server
	if server == "" {
		server = system
	}
	to, err := netip.ParseAddrPort(server)
	if err == nil && strings.HasPrefix(network, "udp") {
		return q.ask(to)
	}
	d := net.Dialer{Timeout: serverTimeout}
	c, err := d.DialContext(ctx, network, server)
	if err == nil {
		context.AfterFunc(ctx, func() { c.Close() })
	}
	return c, err
}

// ask returns a connection for one question more.
func (q *questions) ask(to netip.AddrPort) (net.Conn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return nil, net.ErrClosed
	}
	i := slices.IndexFunc(q.sockets, func(s *nameSocket) bool { return s.to == to && !s.silent })
	if i < 0 {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return nil, err
		}
		s := &nameSocket{UDPConn: c, to: to}
		i, q.sockets = len(q.sockets), append(q.sockets, s)
		q.readers.Go(func() { q.read(s) })
	}
	s := q.sockets[i]
	c := &question{nameSocket: s, of: q, arrived: make(chan arrival, 2)}
	s.asked = append(s.asked, c)
	return c, nil
}

// maxAnswer is how much Go's resolver reads of an answer, in bytes.
const maxAnswer = 1232

// read gives what arrives on a socket to the question that it answers, until
// the socket is closed or fails.
func (q *questions) read(s *nameSocket) {
	b := make([]byte, maxAnswer)
	for {
		n, err := s.UDPConn.Read(b)
		if err != nil {
			q.failed(s, err)
			return
		}
		q.mu.Lock()
		for _, c := range s.asked {
			if c.answeredBy(b[:n]) {
				c.tell(arrival{answer: slices.Clone(b[:n])})
			}
		}
		q.mu.Unlock()
	}
}

// failed tells all questions of a socket: the system tells only once that it
// is of no use, for example as nobody listens.
func (q *questions) failed(s *nameSocket, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.silent = true
	for _, c := range s.asked {
		c.tell(arrival{err: err})
	}
}

// end ends what is still asked, and waits for the sockets' readers.
func (q *questions) end() {
	q.mu.Lock()
	q.over = true
	for _, s := range q.sockets {
		_ = s.UDPConn.Close() // nothing more is wanted from it
	}
	q.mu.Unlock()
	q.readers.Wait()
}

// nameSocket is a socket that goes to one server. What is not the socket itself
// is under its questions' mu.
type nameSocket struct {
	*net.UDPConn
	to     netip.AddrPort
	silent bool // no other question is to be asked over it
	asked  []*question
}

// arrival is an answer, or why none comes.
type arrival struct {
	answer []byte
	err    error
}

// question is one question, for Go's resolver a connection of its own.
type question struct {
	*nameSocket
	of      *questions
	sent    []byte // header and question; under of.mu
	arrived chan arrival
	until   time.Time
}

// Write implements net.Conn: it asks.
func (c *question) Write(b []byte) (int, error) {
	c.of.mu.Lock()
	c.sent = slices.Clone(b[:questionEnd(b)])
	c.of.mu.Unlock()
	n, err := c.UDPConn.Write(b)
	if err != nil {
		c.of.failed(c.nameSocket, err)
	}
	return n, err
}

// Read implements net.Conn: it waits for the answer.
func (c *question) Read(b []byte) (int, error) {
	t := time.NewTimer(time.Until(c.until))
	defer t.Stop()
	select {
	case a := <-c.arrived:
		return copy(b, a.answer), a.err
	case <-t.C: // the next attempt comes from another port
		c.of.mu.Lock()
		c.silent = true
		c.of.mu.Unlock()
		return 0, &net.OpError{Op: "read", Net: "udp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.ErrDeadlineExceeded}
	}
}

// SetDeadline implements net.Conn.
func (c *question) SetDeadline(t time.Time) error {
	c.until = t
	return nil
}

// Close implements net.Conn. The socket stays for the other question.
func (c *question) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.asked = slices.DeleteFunc(c.asked, func(o *question) bool { return o == c })
	if c.silent && len(c.asked) == 0 {
		return c.UDPConn.Close()
	}
	return nil
}

// tell does not wait: of more than are kept the later are of no use.
func (c *question) tell(a arrival) {
	select {
	case c.arrived <- a:
	default:
	}
}

// answeredBy reports whether b is an answer and has the ID and the question that
// were sent: what the resolver passes over takes no place of what it waits for.
// Whether the answer is to be believed the resolver judges, as it does for a
// socket of its own.
func (c *question) answeredBy(b []byte) bool {
	n := len(c.sent)
	if n < headerLen || len(b) < n || b[0] != c.sent[0] || b[1] != c.sent[1] || b[2]&answerBit == 0 {
		return false
	}
	for i := headerLen; i < n; i++ {
		if lower(b[i]) != lower(c.sent[i]) { // lengths and types are told apart, too
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// headerLen is the length of a message's header (RFC 1035, section 4.1.1), in
// whose third byte answerBit says that it is an answer.
const (
	headerLen = 12
	answerBit = 0x80
)

// questionEnd is how long a message's header and its one question are.
func questionEnd(b []byte) int {
	i := headerLen
	for i < len(b) && b[i] != 0 {
		i += 1 + int(b[i])
	}
	return min(i+1+4, len(b))
}
