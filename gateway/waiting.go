package gateway

import (
	"context"
	"sync"
	"time"
)

// waiting is the context of what is done before a request is forwarded. It
// ends with the client, but not when that has only closed its own side, and with
// the connection. Most requests wait for nothing, so what it takes to end is made
// when somebody first waits.
type waiting struct {
	client context.Context // ends with the client
	r      *request

	mu   sync.Mutex
	done chan struct{} // nil: nobody waits
	over bool
	stop func() bool // of the watch of the client; nil: it is not watched
}

// working returns the context, which serveRequest ends.
func (r *request) working() context.Context {
	w := &r.waits
	if w.r == nil {
		w.client, w.r = r.in.Context(), r
	}
	return w
}

// Deadline implements context.Context: there is none.
func (w *waiting) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context: there is none.
func (w *waiting) Value(any) any { return nil }

// Done implements context.Context.
func (w *waiting) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.over {
			close(w.done)
		} else {
			w.stop = context.AfterFunc(w.client, w.left)
			if l := w.r.c.leaving; l != nil && l.wait(w) {
				w.close()
			}
		}
	}
	return w.done
}

// Err implements context.Context.
func (w *waiting) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return context.Canceled
	}
	return nil
}

// left is called when the client has closed its side or broken off.
func (w *waiting) left() {
	if g := w.r.c.guard; g == nil || !g.HalfClosed() {
		w.end()
	}
}

// end ends it for whoever still waits.
func (w *waiting) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.close()
	}
}

// close is end of what has not ended. Its caller holds mu.
func (w *waiting) close() {
	w.over = true
	if w.stop != nil {
		w.stop()
		if l := w.r.c.leaving; l != nil {
			l.wait(nil)
		}
	}
	if w.done != nil {
		close(w.done)
	}
}
