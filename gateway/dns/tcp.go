package dns

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// streams is the TCP connections of one listener.
type streams struct {
	server *Server

	mu    sync.Mutex
	conns map[net.Conn]netip.Addr // with the peer's address
	peers map[netip.Addr]int      // how many each has
	ended bool
	wait  sync.WaitGroup
}

// ServeTCP answers the questions that arrive at connections of ln until ctx
// ends or ln is closed, and closes ln and every connection. The local address
// of a connection is the resolver that was asked. It returns nil when ctx
// ended it. See Options.Rest.
func (s *Server) ServeTCP(ctx context.Context, ln net.Listener) error {
	t := &streams{server: s, conns: map[net.Conn]netip.Addr{}, peers: map[netip.Addr]int{}}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	err := t.accept(ctx, ln)
	stop()
	if err == ErrRest && ctx.Err() == nil {
		return err
	}
	ln.Close()
	t.closeAll()
	t.wait.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("dns: accept: %w", err)
}

func (t *streams) accept(ctx context.Context, ln net.Listener) error {
	t.server.mayRest(ln)
	for failures := 0; ; {
		conn, err := ln.Accept()
		if t.server.o.Rest > 0 && late(err) {
			if t.none() {
				return ErrRest
			}
			t.server.mayRest(ln)
			continue
		}
		if err != nil {
			failures++
			if ctx.Err() != nil || closed(err) {
				return err
			}
			t.server.o.Logger.Warn("dns connection not accepted", "error", err)
			if !pause(ctx, failures) {
				return err
			}
			continue
		}
		failures = 0
		src := source{TransportTCP, addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr())}
		if !t.add(conn, src.peer.Addr()) {
			t.server.reportFault(ctx, src, nil, query{}, fault{err: ErrBusy, drop: true})
			conn.Close()
			continue
		}
		t.wait.Go(func() {
			defer t.remove(conn)
			t.server.serveStream(ctx, src, conn)
		})
	}
}

// add admits conn unless there are too many, of all or of its peer.
func (t *streams) add(conn net.Conn, peer netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.server.o
	if t.ended || len(t.conns) >= o.MaxTCP || t.peers[peer] >= o.MaxTCPPeer {
		return false
	}
	t.conns[conn] = peer
	t.peers[peer]++
	return true
}

// none reports whether no connection is open.
func (t *streams) none() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.conns) == 0
}

func (t *streams) remove(conn net.Conn) {
	conn.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	peer := t.conns[conn]
	delete(t.conns, conn)
	if t.peers[peer]--; t.peers[peer] == 0 {
		delete(t.peers, peer)
	}
}

func (t *streams) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for conn := range t.conns {
		conn.Close()
	}
}

// serveStream answers the messages of one connection in their order, each
// behind its length (RFC 1035 section 4.2.2). A client may send many at once
// (RFC 7766 section 6.2.1): answers are gathered while a whole next message is
// at hand. One message is held at a time, so a client that does not read its
// answers stops being read. A message that does not come whole is reported, and
// so is a connection on which none begins.
func (s *Server) serveStream(ctx context.Context, src source, conn net.Conn) {
	r := bufio.NewReaderSize(conn, 2+512)
	w := bufio.NewWriterSize(deadlineWriter{conn, s.o.IdleTimeout}, 1024)
	defer w.Flush() // what was answered before a message that ends the connection
	var in, out []byte
	for first := true; ; first = false {
		// One deadline a message, whole: a byte now and then does not extend it.
		conn.SetReadDeadline(time.Now().Add(s.o.IdleTimeout))
		var err error
		if in, err = message(r, in); err != nil {
			if !first && (err == ErrSilent || err == ErrUnused) {
				return // between two messages it may end
			}
			s.reportFault(ctx, src, nil, query{}, fault{err: err, drop: true})
			return
		}
		if out = s.respond(ctx, src, in, out); out == nil && len(in) < headerLen {
			return
		}
		if !sendFramed(w, r, out) {
			return
		}
	}
}

// message reads one message behind its length into the room of in. It returns
// ErrSilent or ErrUnused where none begins, and ErrBroken where it is not whole.
func message(r io.Reader, in []byte) ([]byte, error) {
	var prefix [2]byte
	var late interface{ Timeout() bool }
	switch got, err := io.ReadFull(r, prefix[:]); {
	case err == nil:
	case got > 0:
		return in, ErrBroken
	case errors.As(err, &late) && late.Timeout():
		return in, ErrSilent
	default:
		return in, ErrUnused
	}
	n := int(binary.BigEndian.Uint16(prefix[:]))
	if n > MaxQuestionBytes {
		return in, ErrTooLong
	}
	if n > cap(in) {
		in = make([]byte, n)
	}
	if _, err := io.ReadFull(r, in[:n]); err != nil {
		return in, ErrBroken
	}
	return in[:n], nil
}

// sendFramed writes the answer and its length, and flushes unless a whole next
// message waits in r. An empty answer is one that was dropped.
func sendFramed(w *bufio.Writer, r *bufio.Reader, answer []byte) bool {
	if len(answer) > 0 {
		var prefix [2]byte
		binary.BigEndian.PutUint16(prefix[:], uint16(len(answer)))
		w.Write(prefix[:]) // an error stays with w until Flush
		w.Write(answer)
	}
	if next, err := r.Peek(min(2, r.Buffered())); err == nil && len(next) == 2 &&
		r.Buffered() >= 2+int(binary.BigEndian.Uint16(next)) {
		return true
	}
	return w.Flush() == nil
}

// deadlineWriter gives each write its own deadline.
type deadlineWriter struct {
	conn    net.Conn
	timeout time.Duration
}

func (d deadlineWriter) Write(b []byte) (int, error) {
	d.conn.SetWriteDeadline(time.Now().Add(d.timeout))
	return d.conn.Write(b)
}

// addrPort returns the address of a; the zero AddrPort where it has none.
func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}
