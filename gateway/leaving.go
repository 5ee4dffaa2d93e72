package gateway

import (
	"context"
	"net"
	"sync"
)

// leaving tells the exchange that is under way on a connection of HTTP/1.1
// when its client closes its side or breaks off. The context of the request
// ends then as well, but each watch of that costs more than the rest of a
// request's contexts. Of HTTP/2 the server alone knows when a stream ends.
type leaving struct {
	mu   sync.Mutex
	at   *exchange // nil: none is under way
	gone bool

	waits  *waiting // before its exchange; nil: nobody waits
	closed bool     // by the gateway as well
}

// watchClient has left called once when the client closes its side or breaks
// off, or has done so, until unwatchClient is called.
func (x *exchange) watchClient() {
	if c := x.r.c; c.guard != nil {
		c.leaving.watch(x)
		return
	}
	x.unwatch = context.AfterFunc(x.r.in.Context(), x.left)
}

func (x *exchange) unwatchClient() {
	if c := x.r.c; c.guard != nil {
		c.leaving.unwatch()
		return
	}
	x.unwatch()
}

func (l *leaving) watch(x *exchange) {
	l.mu.Lock()
	l.at = x
	gone := l.gone
	l.mu.Unlock()
	if gone {
		go x.left() // it may wait
	}
}

func (l *leaving) unwatch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = nil
}

// tell is called when nothing more can be read or written.
func (l *leaving) tell() {
	l.mu.Lock()
	first, x := !l.gone, l.at
	l.gone = true
	l.mu.Unlock()
	if first && x != nil && x.hijacked.Load() == nil { // who took the connection over knows best
		go x.left()
	}
}

// back is called when the end that was told was only that of a wait.
func (l *leaving) back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = false
}

// wait has w ended when the connection is closed: of one whose client has closed
// its side the server sees nothing more. It is true if it is closed. Nil waits no
// longer.
func (l *leaving) wait(w *waiting) (closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = w
	return l.closed
}

// close is called when the connection is closed.
func (l *leaving) close() {
	l.mu.Lock()
	l.closed = true
	w := l.waits
	l.mu.Unlock()
	if w != nil {
		w.end()
	}
}

// Read reads for the server, which takes any error for the client's end but
// that of a read which it has called back.
func (f *frontConn) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if err != nil && f.guard != nil {
		if ne, ok := err.(net.Error); !ok || !ne.Timeout() || !f.guard.Called() { // as net/http has it
			f.c.leaving.tell()
		}
	}
	return n, err
}

// Write writes for the server, which takes any error for the client's end.
func (f *frontConn) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	if err != nil && f.guard != nil {
		f.c.leaving.tell()
	}
	return n, err
}
