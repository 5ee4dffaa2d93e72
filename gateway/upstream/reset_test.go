package upstream

import (
	"testing"

	"golang.org/x/net/http2"
)

// TestWhoResetAStream: what the peer refuses, and what is no answer, are told
// apart.
func TestWhoResetAStream(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(*framed, int, uint32)
		want   string // class and detail
	}{
		"the peer":         {reset(http2.ErrCodeProtocol, 1), "protocol: the upstream refuses the request"},
		"the peer ends it": {reset(http2.ErrCodeInternal, 1), "reset: the server reset the stream"},
		"no status":        {func(f *framed, _ int, stream uint32) { f.headers(stream, true, "a", "b") }, "protocol: malformed answer"},
		"no field":         {func(f *framed, _ int, stream uint32) { f.headers(stream, true, ":status", "200", "A", "b") }, "protocol: HTTP/2 protocol error"},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := framedOrigin(t, tc.answer)
			u := newUpstream(t, Options{Roots: o.roots})
			_, _, err := send(t, u, o.target(), "https", "GET", nil, speaksHTTP2)
			if class, detail := ErrorClass(err); class+": "+detail != tc.want {
				t.Errorf("%s: %s (%v), want %s", class, detail, err, tc.want)
			}
		})
	}
}
