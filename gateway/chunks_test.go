package gateway

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/policy"
)

// TestBrokenChunks: a body that breaks its framing is what its request is
// refused for, in the answer and on record, and not the client's end.
func TestBrokenChunks(t *testing.T) {
	l := newLab(t)
	plain, o := l.origin(t), l.origin(t, "http/1.1")
	l.allow("plain.test", plain.port, func(r *policy.Rule) { r.Paths = []string{"/up"} })
	l.allow("plain.test", plain.port, func(r *policy.Rule) {
		r.Paths, r.GraphQL = []string{"/echo"}, &policy.GraphQL{Operations: []string{"query"}, Max: 512}
	})
	l.allow("api.test", o.port)
	l.load()
	for name, chunks := range map[string]string{
		"line feed":  "3;ext=\"a\nb\"\r\nabc\r\n0\r\n\r\n",
		"too long":   "3\r\nabcd\r\n0\r\n\r\n",
		"no size":    "x\r\nabc\r\n0\r\n\r\n",
		"late":       "3\r\nabc\r\n3\r\nabcd\r\n0\r\n\r\n",
		"long line":  "3;" + strings.Repeat("e", 1000) + "\r\nabc\r\n0\r\n\r\n",
		"trailer":    "3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"no trailer": "3\r\nabc\r\n0\r\nno trailer\r\n\r\n",
	} {
		for what, tt := range map[string]struct {
			path, host string
			phase      audit.Phase
			open       func() net.Conn
		}{
			"plain":           {"/up", "plain.test", audit.PhaseEnd, func() net.Conn { return l.raw(t, "plain.test", plain.port) }},
			"inside TLS":      {"/up", "api.test", audit.PhaseEnd, func() net.Conn { return l.rawTLS(t, "api.test", o.port) }},
			"decided by body": {"/echo", "plain.test", audit.PhaseDecision, func() net.Conn { return l.raw(t, "plain.test", plain.port) }},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				c := tt.open()
				_, err := io.WriteString(c, "POST "+tt.path+" HTTP/1.1\r\nHost: "+tt.host+"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks)
				must(t, err)
				r := readResponse(t, c)
				if r.StatusCode != http.StatusBadRequest || r.Header.Get("X-Sallyport-Reason") != string(policy.Smuggling) {
					t.Errorf("%d %v", r.StatusCode, r.Header)
				}
				port := uint16(c.LocalAddr().(*net.TCPAddr).Port)
				e := l.await(t, "the record", func(e *audit.Event) bool {
					return e.Kind == audit.KindHTTP && e.Phase == tt.phase && e.Src.Port == port
				})
				if e.Reason != string(policy.Smuggling) || e.Error != nil || tt.phase == audit.PhaseEnd && e.HTTP.Status != http.StatusBadRequest {
					t.Errorf("%s %+v %d", e.Reason, e.Error, e.HTTP.Status)
				}
			})
		}
	}
}
