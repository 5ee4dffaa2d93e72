package gateway

import (
	"errors"
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
	count   int
}

// maxHints is how many informational answers one request may get.
const maxHints = 32

var errTooManyHints = errors.New("too many informational answers")

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
	if h.over || code == http.StatusContinue || code == http.StatusSwitchingProtocols || r.in.ProtoMajor == 1 && r.in.ProtoMinor == 0 {
		return nil
	}
	if h.count++; h.count > maxHints {
		return errTooManyHints
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
