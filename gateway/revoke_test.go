package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"sallyport/audit"
	"sallyport/gateway/http1"
	"sallyport/policy"
)

// cutWithin is how long an attempt may live on whose allow was taken back.
const cutWithin = 2 * time.Second

// uploaded is the beginning of what the origin's /up takes; anything else it
// answers at once.
const uploaded = "\x00\x01\x02"

// TestP7RevokedMeansRevoked opens everything that can be open, takes its allow
// back, and expects it to end and to be recorded as revoked (case OPS-01).
func TestP7RevokedMeansRevoked(t *testing.T) {
	slow := func(r *policy.Rule) { r.Paths = []string{"/hello"} } // still the host, no longer the path
	gone := func(r *policy.Rule) { r.Host = "other.test" }
	for _, tt := range []struct {
		name string
		open func(t *testing.T, l *lab, o *origin) net.Conn // ends when the attempt does
		kind audit.Kind
		only bool // for rules about paths: something that is no request is not cut
	}{
		{"SSE h1", func(t *testing.T, l *lab, o *origin) net.Conn {
			return say(t, l.rawTLS(t, "api.test", o.port), "GET /drip HTTP/1.1\r\nHost: api.test\r\n\r\n")
		}, audit.KindHTTP, false},
		{"SSE h2", func(t *testing.T, l *lab, o *origin) net.Conn {
			s, _ := l.framer(t, "api.test", o.port)
			s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/drip", ":authority", "api.test")
			return &streamEnd{s, 1}
		}, audit.KindHTTP, false},
		{"no answer yet", func(t *testing.T, l *lab, o *origin) net.Conn {
			return say(t, l.rawTLS(t, "api.test", o.port), "GET /hang HTTP/1.1\r\nHost: api.test\r\n\r\n")
		}, audit.KindHTTP, false},
		{"upload h1", func(t *testing.T, l *lab, o *origin) net.Conn {
			return say(t, l.rawTLS(t, "api.test", o.port), "POST /up HTTP/1.1\r\nHost: api.test\r\nContent-Length: 100\r\n\r\n"+uploaded)
		}, audit.KindHTTP, false},
		{"upload h2", func(t *testing.T, l *lab, o *origin) net.Conn {
			s, _ := l.framer(t, "api.test", o.port)
			s.head(t, 1, false, ":method", "POST", ":scheme", "https", ":path", "/up", ":authority", "api.test")
			must(t, s.WriteData(1, false, []byte(uploaded)))
			return &streamEnd{s, 1}
		}, audit.KindHTTP, false},
		{"client that does not read h1", func(t *testing.T, l *lab, o *origin) net.Conn {
			return &unread{Conn: say(t, l.rawTLS(t, "api.test", o.port), "GET /forever HTTP/1.1\r\nHost: api.test\r\n\r\n")}
		}, audit.KindHTTP, false},
		{"client that does not read h2", func(t *testing.T, l *lab, o *origin) net.Conn {
			s, _ := l.framer(t, "api.test", o.port)
			s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/forever", ":authority", "api.test")
			return &streamEnd{s, 1} // it never opens the window further
		}, audit.KindHTTP, false},
		{"WebSocket h1", func(t *testing.T, l *lab, o *origin) net.Conn {
			c := say(t, l.rawTLS(t, "api.test", o.port), fmt.Sprintf(upgradeRequest, "/ws"))
			if r := readResponse(t, c); r.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("status %d", r.StatusCode)
			}
			return c
		}, audit.KindWS, false},
		{"WebSocket h2", func(t *testing.T, l *lab, o *origin) net.Conn {
			return &streamEnd{l.openWebSocket2(t, o, "/ws"), 1}
		}, audit.KindWS, false},
		{"idle h2", func(t *testing.T, l *lab, o *origin) net.Conn {
			s, _ := l.framer(t, "api.test", o.port)
			s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/204", ":authority", "api.test")
			s.status(t, 1)
			return s.Conn
		}, audit.KindConn, true},
		{"idle h1", func(t *testing.T, l *lab, o *origin) net.Conn {
			c := say(t, l.rawTLS(t, "api.test", o.port), "GET /204 HTTP/1.1\r\nHost: api.test\r\n\r\n")
			readResponse(t, c)
			return c
		}, audit.KindConn, true},
	} {
		for _, change := range []struct {
			name string
			by   func(*policy.Rule)
		}{{"host", gone}, {"path", slow}} {
			if change.name == "path" && tt.only {
				continue
			}
			t.Run(tt.name+" by "+change.name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				o := l.origin(t, "h2", "http/1.1")
				l.allow("api.test", o.port)
				l.load()
				c := tt.open(t, l, o)
				l.await(t, "admission", func(e *audit.Event) bool { return e.Kind == tt.kind && e.Verdict == "allow" })
				time.Sleep(100 * time.Millisecond) // so that it is under way
				change.by(&l.rules[0])
				taken := time.Now()
				l.load()
				ended(t, c, cutWithin)
				e := l.await(t, "end as revoked", func(e *audit.Event) bool {
					return e.Kind == tt.kind && e.Phase == audit.PhaseEnd && e.Reason == string(policy.Revoked)
				})
				if late := e.Time.Sub(taken); late > cutWithin {
					t.Errorf("ended %v after its allow was taken back", late)
				}
			})
		}
	}
}

// TestCutIsWhole: the handler that a cut ends on the upstream's side does not end
// the exchange before the sandbox's side is cut too. A body that the client does
// not go on with would be waited for.
func TestCutIsWhole(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _ = errors.Join(near.Close(), far.Close()) })
	guard := http1.NewGuard(near, http1.Limits{})
	x := &exchange{r: &request{c: &conn{guard: guard}}}
	over := make(chan struct{})
	x.cancel = func(error) {
		go func() { // the handler
			defer close(over)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.over = true
		}()
		select {
		case <-over:
		case <-time.After(100 * time.Millisecond):
		}
	}
	x.cut(errStalled)
	<-over
	if x.last != nil {
		x.last.Stop()
	}
	if !guard.Halted() {
		t.Error("the sandbox's side is still read")
	}
}

// streamEnd is a stream whose end is that of a connection.
type streamEnd struct {
	*stream2
	id uint32
}

func (s *streamEnd) Read([]byte) (int, error) {
	for {
		f, err := s.ReadFrame()
		if err != nil {
			return 0, err
		}
		if _, reset := f.(*http2.RSTStreamFrame); reset && f.Header().StreamID == s.id || f.Header().StreamID == s.id && f.Header().Flags.Has(http2.FlagDataEndStream) {
			return 0, io.EOF
		}
	}
}

func (s *streamEnd) Write(p []byte) (int, error) { return s.Conn.Write(p) }

// unread is a connection that is not read for a while after its allow was
// taken back. What had come by then is read without haste: when it ended is on
// record.
type unread struct {
	net.Conn
	once sync.Once
}

func (u *unread) Read(p []byte) (int, error) {
	u.once.Do(func() {
		time.Sleep(cutWithin * 3 / 4)
		_ = u.SetReadDeadline(time.Now().Add(pieceWait)) // an error comes again from Read
	})
	return u.Conn.Read(p)
}

// TestP7Answer: a request that has no answer yet is told why it gets none.
func TestP7Answer(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			l := newLab(t)
			o := l.origin(t, "h2", "http/1.1")
			l.allow("api.test", o.port)
			l.load()
			go func() {
				for l.g.live.count() < 2 { // connection and request
					time.Sleep(5 * time.Millisecond)
				}
				l.rules[0].Paths = []string{"/hello"}
				l.load()
			}()
			r, _, err := body(l.client(t, h2).Get("https://api.test:" + strconv.Itoa(int(o.port)) + "/hang"))
			must(t, err)
			if r.StatusCode != http.StatusForbidden || r.Header.Get("X-Sallyport-Reason") != string(policy.Revoked) {
				t.Fatalf("%d %s", r.StatusCode, r.Header.Get("X-Sallyport-Reason"))
			}
		})
	}
}

// count returns how much is open.
func (l *live) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// TestP7Relays: relays that are not opened are cut too.
func TestP7Relays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		action policy.Action
		open   func(t *testing.T, l *lab, port uint16) net.Conn
	}{
		{"tcp", policy.ActionTCP, func(t *testing.T, l *lab, port uint16) net.Conn {
			c := say(t, l.raw(t, "raw.test", port), "x")
			_, err := io.ReadFull(c, make([]byte, 1))
			must(t, err)
			return c
		}},
		{"passthrough", policy.ActionPassthrough, func(t *testing.T, l *lab, port uint16) net.Conn {
			c := tls.Client(l.raw(t, "raw.test", port), &tls.Config{InsecureSkipVerify: true, ServerName: "raw.test"})
			must(t, c.Handshake())
			return c
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			port := l.echoOrigin(t, tt.action == policy.ActionPassthrough)
			l.allow("raw.test", port, func(r *policy.Rule) { r.Action, r.Schemes = tt.action, nil })
			l.load()
			c := tt.open(t, l, port)
			l.rules = nil
			l.load()
			ended(t, c, cutWithin)
			l.await(t, "end as revoked", func(e *audit.Event) bool {
				return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd && e.Reason == string(policy.Revoked)
			})
		})
	}
}

// TestP7RelayIsToBeOpened: what was relayed unopened does not live on under a
// rule that looks into what passes.
func TestP7RelayIsToBeOpened(t *testing.T) {
	for _, action := range []policy.Action{policy.ActionTCP, policy.ActionPassthrough} {
		t.Run(action.String(), func(t *testing.T) {
			l := newLab(t)
			port := l.echoOrigin(t, true)
			l.allow("raw.test", port, func(r *policy.Rule) { r.Action, r.Schemes = action, nil })
			l.load()
			c := tls.Client(l.raw(t, "raw.test", port), &tls.Config{InsecureSkipVerify: true, ServerName: "raw.test"})
			must(t, c.Handshake())
			l.load()
			say(t, c, "still there")
			_, err := io.ReadFull(c, make([]byte, len("still there")))
			must(t, err)
			l.rules = nil
			l.allow("raw.test", port, func(r *policy.Rule) { r.Paths = []string{"/only"} })
			if cut, open := l.g.WouldCut(l.snapshot().Policy); cut["ci"] != 1 || open != 1 {
				t.Errorf("a reload would cut %v of %d", cut, open)
			}
			l.load()
			ended(t, c, cutWithin)
			l.await(t, "end as revoked", func(e *audit.Event) bool {
				return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd && e.Reason == string(policy.Revoked)
			})
		})
	}
}

// TestP7AddressIsTakenBack: a relay does not live on to an address that the
// rule no longer names.
func TestP7AddressIsTakenBack(t *testing.T) {
	l := newLab(t)
	port := l.echoOrigin(t, false)
	l.allow("raw.test", port, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	c := say(t, l.raw(t, "raw.test", port), "x")
	_, err := io.ReadFull(c, make([]byte, 1))
	must(t, err)
	l.rules[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	if cut, open := l.g.WouldCut(l.snapshot().Policy); cut["ci"] != 1 || open != 1 {
		t.Errorf("a reload would cut %v of %d", cut, open)
	}
	l.load()
	ended(t, c, cutWithin)
	l.await(t, "end as revoked", func(e *audit.Event) bool {
		return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd && e.Reason == string(policy.Revoked)
	})
}

// TestOPS02 reloads again and again with what is open staying allowed, and
// nothing fails.
func TestOPS02(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			l.rules = l.rules[:1]
			if i%2 == 0 {
				l.allow("other.test", o.port)
			}
			l.load()
		}
	}()
	ws := l.dialWebSocket(t, o, "/ws")
	for _, h2 := range []bool{false, true} {
		client := l.client(t, h2)
		for range 100 {
			_, b, err := body(client.Get("https://api.test:" + strconv.Itoa(int(o.port)) + "/hello"))
			if err != nil || b != "hello" {
				t.Fatalf("%q, %v", b, err)
			}
		}
	}
	must(t, ws.Ping(ws.CloseRead(t.Context())))
	close(stop)
	<-stopped
}

// TestP7Nothing: without a policy in force, nothing stays open and nothing
// comes up.
func TestP7Nothing(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	r, _, err := body(l.client(t, false).Get("https://api.test:" + strconv.Itoa(int(o.port)) + "/hello"))
	must(t, err)
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("X-Sallyport-Reason") != string(policy.PolicyUnavailable) {
		t.Fatalf("before the first policy: %d %s", r.StatusCode, r.Header.Get("X-Sallyport-Reason"))
	}
	l.allow("api.test", o.port)
	l.load()
	c := say(t, l.rawTLS(t, "api.test", o.port), "GET /drip HTTP/1.1\r\nHost: api.test\r\n\r\n")
	readResponse(t, c)
	l.g.Swap(&Snapshot{})
	ended(t, c, cutWithin)
	l.load()
	c = say(t, l.rawTLS(t, "api.test", o.port), "GET /drip HTTP/1.1\r\nHost: api.test\r\n\r\n")
	readResponse(t, c)
	l.g.Swap(nil)
	ended(t, c, cutWithin)
}

// echoOrigin starts an origin that sends back what it is sent, and closes its
// side when the other does.
func (l *lab) echoOrigin(t *testing.T, opened bool) uint16 {
	t.Helper()
	ln := listen(t)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if opened {
					cert, err := l.origins.Leaf("raw.test")
					if err != nil {
						return
					}
					c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}})
				}
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return portOf(ln)
}
