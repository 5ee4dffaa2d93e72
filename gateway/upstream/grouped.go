package upstream

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"
)

// Grouped is a connection that many requests share, on which each writes little.
// A write costs a record of TLS and a system call, so what those write that are
// ready at the same time is sent together. Nothing waits for who is not.
//
// What was taken may fail later: that closes the connection, and whoever reads
// or writes next is told why.
type Grouped struct {
	net.Conn
	stall time.Duration // bounds how long a write may take; 0 does not

	mu    sync.Mutex
	ended sync.Cond // of a write
	taken []byte    // to be sent
	spare []byte    // its buffer before
	sends bool      // somebody sends, or is about to
	err   error     // of a write
}

// groupSize is how many bytes are sent together: those of one record.
const groupSize = maxPlain

// NewGrouped returns c with its writes grouped. Each may take as long as stall
// says, if that is not 0.
func NewGrouped(c net.Conn, stall time.Duration) *Grouped {
	g := &Grouped{Conn: c, stall: stall}
	g.ended.L = &g.mu
	return g
}

// Write takes p, to be sent together with what others write. What is long is
// sent before it returns.
func (g *Grouped) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil && g.sends && len(g.taken)+len(p) > groupSize {
		g.ended.Wait()
	}
	switch {
	case g.err != nil:
		return 0, g.err
	case g.sends:
		g.taken = append(g.taken, p...)
	case len(p) <= groupSize:
		g.taken, g.sends = append(g.taken, p...), true
		go g.sendTaken()
	default:
		if g.sends = true; g.send(p) != nil {
			return 0, g.err
		}
		if g.sends = len(g.taken) > 0; g.sends {
			go g.sendTaken()
		}
	}
	return len(p), nil
}

// sendTaken sends what was taken, until nothing is left.
func (g *Grouped) sendTaken() {
	for more := true; more; {
		runtime.Gosched() // who is ready writes before
		more = g.sendGroup()
	}
}

// sendGroup sends what was taken, and says whether more was taken meanwhile.
func (g *Grouped) sendGroup() (more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.taken
	g.taken, g.spare = g.spare[:0], nil
	err := g.send(b)
	g.spare = b
	g.sends = err == nil && len(g.taken) > 0
	return g.sends
}

// send sends b, and closes the connection if it cannot. Its caller holds mu,
// and is the only one that sends.
func (g *Grouped) send(b []byte) error {
	g.mu.Unlock()
	if g.stall > 0 {
		_ = g.Conn.SetWriteDeadline(time.Now().Add(g.stall)) // an error comes again from Write
	}
	_, err := g.Conn.Write(b)
	if g.stall > 0 {
		_ = g.Conn.SetWriteDeadline(time.Time{}) // likewise from the next one
	}
	g.mu.Lock()
	g.err = err
	g.ended.Broadcast()
	if err != nil {
		g.mu.Unlock()
		_ = g.Conn.Close() // err is what is told
		g.mu.Lock()
	}
	return err
}

// closeWait is how long a close waits to send what is left, to a peer that does
// not read.
const closeWait = 250 * time.Millisecond

// Close closes the connection when what was taken is sent, as it would be
// without Grouped: the last of it may say why the connection ends.
func (g *Grouped) Close() error {
	late := time.AfterFunc(closeWait, func() { _ = g.Conn.Close() }) // told below
	defer late.Stop()
	g.mu.Lock()
	for g.sends && g.err == nil {
		g.ended.Wait()
	}
	g.mu.Unlock()
	return g.Conn.Close()
}

// SetWriteDeadline does nothing: what is written is bounded where it is sent.
func (g *Grouped) SetWriteDeadline(time.Time) error { return nil }

// Read reads from the connection. Of one that was closed because a write has
// failed it tells that.
func (g *Grouped) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if err != nil && errors.Is(err, net.ErrClosed) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.err != nil {
			err = g.err
		}
	}
	return n, err
}
