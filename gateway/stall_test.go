package gateway

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// TestStalledStream: a stream of HTTP/2 whose client never opens its window
// is given up, and the others of its connection go on.
func TestStalledStream(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/forever", ":authority", "api.test")
	if code := s.status(t, 1); code != "200" {
		t.Fatal(code)
	}
	for end := time.Now().Add(10 * time.Second); l.g.live.count() > 1 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		l.g.live.expire(time.Now().Add(l.g.Limits.StallTimeout + time.Second)) // ends it once the window is used up
	}
	ended(t, &streamEnd{s, 1}, cutWithin)
	e := l.await(t, "end", func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd })
	if e.Error == nil || e.Error.Class != "timeout" || e.Reason != "" {
		t.Fatalf("%s %+v", e.Reason, e.Error)
	}
	must(t, s.SetReadDeadline(time.Now().Add(10*time.Second)))
	s.head(t, 3, true, ":method", "GET", ":scheme", "https", ":path", "/204", ":authority", "api.test")
	if code := s.status(t, 3); code != "204" {
		t.Fatalf("another stream: %s", code)
	}
}

// TestIdleRelay: a relay on which nothing passes is given up.
func TestIdleRelay(t *testing.T) {
	l := newLab(t, func(d *Deps, _ *upstream.Options) { d.Limits.RelayIdle = 300 * time.Millisecond })
	port := l.echoOrigin(t, false)
	l.allow("raw.test", port, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	c := say(t, l.raw(t, "raw.test", port), "x")
	ended(t, c, 10*time.Second)
	e := l.await(t, "end", func(e *audit.Event) bool { return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd })
	if e.Error == nil || e.Error.Class != "timeout" {
		t.Fatalf("%+v", e.Error)
	}
}

// TestH128BrokenOrigins: an answer that breaks off, in whatever way, never
// ends cleanly (case H1-28), and one that is no answer is a 502 without the
// origin's text.
func TestH128BrokenOrigins(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		reset        bool
		status       int  // 0: none
		whole        bool // the body ends cleanly
	}{
		{"whole", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd", false, 200, true},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nabcd", false, 200, true},
		{"length not reached", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabcd", false, 200, false},
		{"no last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n", false, 200, false},
		{"half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nabcd", false, 200, false},
		{"reset", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabcd", true, 200, false},
		{"nothing", "", false, 502, true},
		{"half a head", "HTTP/1.1 200 OK\r\nX-Canary: y", false, 502, true},
		{"not HTTP", "canary canary\r\n\r\n", false, 502, true},
		{"large head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("canary", 200<<10) + "\r\n\r\n", false, 502, true},
		{"endless hints", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </canary>\r\n\r\n", 1000), false, 502, true},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", false, 502, true},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(tt.name+" h2 "+strconv.FormatBool(h2), func(t *testing.T) {
				l := newLab(t)
				port := l.script(t, func(c net.Conn) {
					_, _ = io.WriteString(c, tt.answer)
					if tt.reset {
						time.Sleep(100 * time.Millisecond)
						_ = c.(*net.TCPConn).SetLinger(0)
					}
				})
				scheme := "http"
				if h2 {
					scheme, port = "https", l.overTLS(t, port)
				}
				l.allow("api.test", port)
				l.load()
				r, err := l.client(t, h2).Get(scheme + "://api.test:" + strconv.Itoa(int(port)) + "/")
				must(t, err)
				defer r.Body.Close()
				b, err := io.ReadAll(r.Body)
				if r.StatusCode != tt.status || (err == nil) != tt.whole {
					t.Fatalf("%d, %q, %v", r.StatusCode, b, err)
				}
				if strings.Contains(string(b), "anary") && r.StatusCode == http.StatusBadGateway {
					t.Fatalf("the origin's text in %q", b)
				}
			})
		}
	}
}
