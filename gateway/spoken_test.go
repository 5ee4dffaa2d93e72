package gateway

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// TestOtherThanAgreed: HTTP/1 where HTTP/2 was agreed on is on record.
func TestOtherThanAgreed(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	for _, what := range []string{"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"} {
		c := say(t, l.rawTLS(t, "api.test", o.port, "h2"), what)
		port := uint16(c.LocalAddr().(*net.TCPAddr).Port)
		l.await(t, "refusal of what was not agreed on", func(e *audit.Event) bool {
			return e.Kind == audit.KindHTTP && e.Verdict == "deny" && e.Reason == string(policy.ProtocolError) && e.Src.Port == port
		})
		ended(t, c, 10*time.Second)
	}
}

// TestGivenUpBeforeItsHostIsFound: a request that its client ends, or that
// ends because of what the client sends, while its host is looked up is not
// one whose host could not be found.
func TestGivenUpBeforeItsHostIsFound(t *testing.T) {
	asked := make(chan struct{}, 16)
	l := newLab(t, func(_ *Deps, o *upstream.Options) {
		o.Lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	for host, end := range map[string]func(*stream2) error{
		"reset.test":       func(s *stream2) error { return s.WriteRSTStream(1, http2.ErrCodeCancel) },
		"longer-body.test": func(s *stream2) error { return s.WriteData(1, true, []byte("abcdef")) },
		"trailers.test": func(s *stream2) error {
			return s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x84}, EndHeaders: true, EndStream: true})
		},
	} {
		t.Run(host, func(t *testing.T) {
			l.allow(host, 443)
			l.load()
			s, _ := l.framer(t, host, 443)
			port := uint16(s.LocalAddr().(*net.TCPAddr).Port)
			s.head(t, 1, false, ":method", "POST", ":scheme", "https", ":path", "/", ":authority", host, "content-length", "2")
			select {
			case <-asked:
			case <-time.After(10 * time.Second):
				t.Fatal("the host is not looked up")
			}
			must(t, end(s))
			e := l.await(t, "the denial", func(e *audit.Event) bool {
				return e.Kind == audit.KindHTTP && e.Verdict == "deny" && e.Src.Port == port
			})
			if e.Reason != string(policy.ProtocolError) {
				t.Errorf("%s %s", e.Reason, e.Message)
			}
		})
	}
}
