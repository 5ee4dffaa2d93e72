package gateway

import (
	"fmt"
	"net/http"
	"net/textproto"
	"sync"
)

// earlyHints passes informational answers on (RFC 9110, section 15.2) until
// the final one is under way.
type earlyHints struct {
	mu      sync.Mutex // held while one is written
	over    bool
	invited bool
	told    bool // that the body may be sent, by the upstream
	count   int
}

// maxHints is how many informational answers one request may get: net/http
// leaves it to whoever passes them on to bound them, and has no bound on time
// between two of them.
const maxHints = 32

var errTooManyHints = fmt.Errorf("the upstream sent more than %d informational answers", maxHints)

func (h *earlyHints) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

// invite tells an HTTP/1.1 client that waits for it to send the body, before
// the first byte of that is read. The server would do so itself inside that
// read, while an informational answer of the upstream may be on its way into
// the same buffer. Once the final answer is under way the server knows best.
func (x *exchange) invite() {
	h, r := &x.early, x.r
	if r.in.ProtoMajor != 1 || r.in.ProtoMinor == 0 || r.in.Header.Get("Expect") == "" || r.taken != nil {
		return // or the first byte was read before the request left
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.invited {
		return
	}
	h.invited = true
	r.w.WriteHeader(http.StatusContinue)
}

// interim passes one informational answer on.
func (x *exchange) interim(code int, fields textproto.MIMEHeader) error {
	h, r := &x.early, x.r
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return nil
	}
	if code == http.StatusContinue && !h.told {
		h.told = true // for net/http, which waits for it
		return nil
	}
	if h.count++; h.count > maxHints {
		return errTooManyHints
	}
	if code == http.StatusContinue || code == http.StatusSwitchingProtocols || r.in.ProtoMajor == 1 && r.in.ProtoMinor == 0 {
		return nil
	}
	x.maskEarly(http.Header(fields))
	out := r.w.Header()
	for k, v := range fields {
		out[k] = v
	}
	r.w.WriteHeader(code)
	for k := range fields {
		delete(out, k)
	}
	return nil
}
