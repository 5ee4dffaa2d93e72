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
	mu    sync.Mutex
	over  bool
	count int
}

// maxHints is how many informational answers one request may get.
const maxHints = 32

var errTooManyHints = errors.New("too many informational answers")

func (h *earlyHints) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
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
