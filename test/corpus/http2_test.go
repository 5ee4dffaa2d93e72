//go:build linux

package corpus_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"net"

	"sallyport/audit"
	"sallyport/test/lab"
)

func http2Policy() map[string]string {
	return map[string]string{"http2.hcl": `
sandbox "ws" {
  allow "*.ws.test" { addresses = DOCS }
  allow "closed.ws2.test" {
    websocket = false
    addresses = DOCS
  }
}
`}
}

// frames is an HTTP/2 connection written frame by frame.
type frames struct {
	*http2.Framer
	conn net.Conn
	enc  *hpack.Encoder
	buf  bytes.Buffer
}

// dialFrames opens one to host.
func dialFrames(t *testing.T, s *lab.Sandbox, host string) *frames {
	t.Helper()
	c, err := s.TLS(host+":443", &tls.Config{NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if p := c.ConnectionState().NegotiatedProtocol; p != "h2" {
		t.Fatalf("the protocol is %q", p)
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := &frames{Framer: http2.NewFramer(c, c), conn: c}
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.buf)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

// ask sends the head of a request on a stream: pairs of name and value.
func (f *frames) ask(t *testing.T, stream uint32, end bool, pairs ...string) {
	t.Helper()
	f.buf.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) // to a buffer
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.buf.Bytes(), EndHeaders: true, EndStream: end}); err != nil {
		t.Fatal(err)
	}
}

// outcome is how a stream ended: a status and a reason, or an error code.
type outcome struct {
	status, reason string
	reset          bool
}

// await reads until each stream has an outcome or the connection ends.
func (f *frames) await(t *testing.T, streams ...uint32) map[uint32]outcome {
	t.Helper()
	_ = f.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	out := map[uint32]outcome{}
	for {
		whole := true
		for _, s := range streams {
			_, ok := out[s]
			whole = whole && ok
		}
		if whole {
			return out
		}
		fr, err := f.ReadFrame()
		if err != nil {
			return out
		}
		switch fr := fr.(type) {
		case *http2.SettingsFrame:
			if !fr.IsAck() {
				_ = f.WriteSettingsAck() // an error comes again from the next read
			}
		case *http2.MetaHeadersFrame:
			o := outcome{status: fr.PseudoValue("status")}
			for _, h := range fr.RegularFields() {
				if h.Name == "x-sallyport-reason" {
					o.reason = h.Value
				}
			}
			out[fr.StreamID] = o
		case *http2.RSTStreamFrame:
			if _, ok := out[fr.StreamID]; !ok {
				out[fr.StreamID] = outcome{reset: true}
			}
		case *http2.GoAwayFrame:
			for _, s := range streams {
				if _, ok := out[s]; !ok && fr.ErrCode != http2.ErrCodeNo {
					out[s] = outcome{reset: true}
				}
			}
		}
	}
}

func TestH201Coalescing(t *testing.T) {
	begin(t)
	s := s1(t)
	const good, other, evil = "h201.good.test", "h201.other.test", "h201.evil.test"
	before := s.Mark()
	f := dialFrames(t, s, good)
	leaf := f.conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != good || len(leaf.IPAddresses) > 0 {
		t.Errorf("the leaf is for %v %v", leaf.DNSNames, leaf.IPAddresses)
	}
	for i, host := range []string{good, other, evil, good} {
		f.ask(t, uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":authority", host, ":path", "/", "authorization", "Bearer $API_KEY")
		f.await(t, uint32(2*i+1))
	}
	f.ask(t, 9, true, ":method", "GET", ":scheme", "https", ":authority", good, ":path", "/")
	if got := f.await(t, 9)[9]; got.status != "200" {
		t.Errorf("the connection does not go on: %+v", got)
	}
	ok, no := "http allow rule_allow "+good, "http deny authority_mismatch "+good
	s.Decided(t, before, append(connected(good), ok, no, no, ok, ok))
	silent(t, other, evil)
}

func TestH203IllegalFields(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "h203.good.test"
	plain := []string{":method", "POST", ":scheme", "https", ":authority", host, ":path", "/"}
	for _, tt := range []struct {
		name  string
		pairs []string
	}{
		{"CRLF in a value", append(plain[:8:8], "x-a", "1\r\nauthorization: Bearer x")},
		{"NUL in a value", append(plain[:8:8], "x-a", "1\x002")},
		{"LF in a value", append(plain[:8:8], "x-a", "1\n2")},
		{"colon in a name", append(plain[:8:8], "x: y", "1")},
		{"space in a name", append(plain[:8:8], "x y", "1")},
		{"upper case", append(plain[:8:8], "X-A", "1")},
		{"transfer-encoding", append(plain[:8:8], "transfer-encoding", "chunked")},
		{"connection", append(plain[:8:8], "connection", "close")},
		{"upgrade", append(plain[:8:8], "upgrade", "h2c")},
		{"two paths", append(plain[:8:8], ":path", "/b")},
		{"pseudo-header after a field", append(plain[:6:6], "x-a", "1", ":path", "/")},
		{"unknown pseudo-header", append([]string{":host", host}, plain...)},
		{"no path", plain[:6]},
		{"CRLF in the path", append(plain[:6:6], ":path", "/\r\nX: y")},
		{"space in the path", append(plain[:6:6], ":path", "/a b")},
		{"authority and another host", append(plain[:8:8], "host", "evil.test")},
		{"userinfo in the authority", []string{":method", "GET", ":scheme", "https", ":authority", "evil.test@" + host, ":path", "/"}},
		{"another scheme", []string{":method", "GET", ":scheme", "ftp", ":authority", host, ":path", "/"}},
		{"protocol without CONNECT", append([]string{":protocol", "websocket"}, plain...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := dialFrames(t, s, host)
			f.ask(t, 1, true, tt.pairs...)
			got := f.await(t, 1)[1]
			if !got.reset && got.status != "400" && got.status != "421" {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("content-length that is not the body's", func(t *testing.T) {
		f := dialFrames(t, s, host)
		f.ask(t, 1, false, append(plain[:8:8], "content-length", "4")...)
		if err := f.WriteData(1, true, []byte("more than four")); err != nil {
			t.Fatal(err)
		}
		if got := f.await(t, 1)[1]; got.status == "200" {
			t.Errorf("got %+v", got)
		}
	})
	for _, q := range origin(host).Requests() {
		if q.Body != "" || len(q.Header["X-A"]) > 0 {
			t.Errorf("the origin saw %+v", q)
		}
	}
}

func TestH203EveryRefusalIsRecorded(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "h203r.good.test"
	for _, pairs := range [][]string{
		{":method", "GET", ":scheme", "https", ":authority", host, ":path", "/", "x-a", "1\r\n2"},
		{":method", "GET", ":scheme", "https", ":authority", host, ":path", "/", "transfer-encoding", "chunked"},
		{":method", "GET", ":scheme", "https", ":authority", "evil.test@" + host, ":path", "/"},
		{":method", "GET", ":protocol", "websocket", ":scheme", "https", ":authority", host, ":path", "/"},
	} {
		before := s.Mark()
		f := dialFrames(t, s, host)
		f.ask(t, 1, true, pairs...)
		f.await(t, 1)
		_ = f.conn.Close()
		eventually(t, func() error {
			got := s.Decisions()[before:]
			if !slices.ContainsFunc(got, func(e *audit.Event) bool { return e.Verdict == "deny" }) {
				return fmt.Errorf("%q left the records %q", pairs[len(pairs)-2:], lineList(got))
			}
			return nil
		})
	}
	silent(t, host)
}

func lineList(events []*audit.Event) (out []string) {
	for _, e := range events {
		out = append(out, lab.Line(e))
	}
	return out
}

func TestH206ResetAfterAnswerAndGoAway(t *testing.T) {
	begin(t)
	s := s1(t)
	serve := func(host string, answer func(f *http2.Framer, stream uint32) (more bool)) {
		origin(host).SetProtocols("h2")
		origin(host).SetScript(func(c lab.Conn, _ int) {
			if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
				return
			}
			f := http2.NewFramer(c, c)
			_ = f.WriteSettings()
			for {
				fr, err := f.ReadFrame()
				if err != nil {
					return
				}
				switch fr := fr.(type) {
				case *http2.SettingsFrame:
					if !fr.IsAck() {
						_ = f.WriteSettingsAck()
					}
				case *http2.HeadersFrame:
					if !answer(f, fr.StreamID) {
						return
					}
				}
			}
		})
	}
	block := func(fields ...string) []byte {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for i := 0; i < len(fields); i += 2 {
			_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return b.Bytes()
	}
	ok := func(f *http2.Framer, stream uint32) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block(":status", "200"), EndHeaders: true})
		_ = f.WriteData(stream, true, []byte("whole"))
	}
	const reset, away = "h206-reset.good.test", "h206-away.good.test"
	serve(reset, func(f *http2.Framer, stream uint32) bool {
		ok(f, stream)
		return f.WriteRSTStream(stream, http2.ErrCodeNo) == nil
	})
	for _, method := range []string{"GET", "POST"} {
		a := lab.Do(t, s.Client(t, true), lab.NewRequest(t, method, "https://"+reset+"/", map[bool]string{true: "body"}[method == "POST"]))
		if a.Status != 200 || a.Body != "whole" {
			t.Errorf("%s: %d %q", method, a.Status, a.Body)
		}
	}
	tried := make(chan struct{}, 10)
	serve(away, func(f *http2.Framer, stream uint32) bool {
		tried <- struct{}{}
		if len(tried) == 1 {
			return f.WriteGoAway(0, http2.ErrCodeNo, nil) == nil // nothing was processed
		}
		ok(f, stream)
		return f.WriteGoAway(stream, http2.ErrCodeNo, nil) == nil // no more on this connection
	})
	if a := s.Get(t, "https://"+away+"/"); a.Status != 200 || a.Body != "whole" {
		t.Errorf("a stream that was not processed: %d %q", a.Status, a.Body)
	}
	if n := len(tried); n != 2 {
		t.Errorf("a stream that was not processed was sent %d times", n)
	}
	const posted = "h206-post.good.test"
	count := make(chan struct{}, 10)
	serve(posted, func(f *http2.Framer, _ uint32) bool {
		count <- struct{}{}
		_ = f.WriteGoAway(1, http2.ErrCodeInternal, nil) // it was being processed
		return false                                     // RFC 9113, section 5.4.1: the connection is closed
	})
	if a := lab.Do(t, s.Client(t, true), lab.NewRequest(t, "POST", "https://"+posted+"/", "once")); a.Status != 502 {
		t.Errorf("a POST that broke off: %d", a.Status)
	}
	if n := len(count); n != 1 {
		t.Errorf("a POST was sent %d times", n)
	}
}

func TestH207CookiesAndLowerCase(t *testing.T) {
	begin(t)
	s := attached(t, "sec08")
	const host = "h207.sec08.test"
	origin(host).SetProtocols("http/1.1")
	before := s.Mark()
	f := dialFrames(t, s, host)
	f.ask(t, 1, true, ":method", "GET", ":scheme", "https", ":authority", host, ":path", "/", "x-api-key", "$SEC08_KEY", "cookie", "a=1", "cookie", "b=2")
	if got := f.await(t, 1)[1]; got.status != "200" {
		t.Errorf("got %+v", got)
	}
	f.ask(t, 3, true, ":method", "GET", ":scheme", "https", ":authority", host, ":path", "/", "cookie", "a=$SEC08", "cookie", "_KEY")
	if got := f.await(t, 3)[3]; got.status != "200" {
		t.Errorf("a placeholder cut in two: %+v", got)
	}
	f.ask(t, 5, true, ":method", "GET", ":scheme", "https", ":authority", host, ":path", "/", "cookie", "a=$SEC08_KEY", "cookie", "b=2")
	if got := f.await(t, 5)[5]; got.status != "403" {
		t.Errorf("a placeholder in a cookie, which is no place of the secret: %+v", got)
	}
	s.Decided(t, before, append(connected(host), "http allow rule_allow "+host, "http allow rule_allow "+host, "http deny placeholder_place "+host))
	q := origin(host).Requests()
	if len(q) != 2 || strings.Join(q[0].Header["X-Api-Key"], "|") != real || strings.Join(q[0].Header["Cookie"], "|") != "a=1; b=2" {
		t.Fatalf("the origin saw %+v", q)
	}
	if bytes.Contains(origin(host).Raw(), []byte("a="+real)) || strings.Contains(strings.Join(q[1].Header["Cookie"], "; "), real) {
		t.Error("a placeholder was put together from two fields")
	}
}

func TestTLS07GRPC(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "tls07.good.test"
	if r := s.Command(t, "curl", "-sS", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "https://"+host+"/"); r.Stdout != "2 200" {
		t.Errorf("curl: %q %s", r.Stdout, r.Stderr)
	}
	conn, err := grpc.NewClient("passthrough:///"+host+":443",
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: s.Roots, ServerName: host})),
		grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) { return s.Dial("tcp", address) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := testpb.NewTestServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	with := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer $API_KEY", "x-bin-bin", "\x00\x01\xff")

	t.Run("unary", func(t *testing.T) {
		var header, trailer metadata.MD
		out, err := client.UnaryCall(with, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: bytes.Repeat([]byte("p"), 100000)}}, grpc.Header(&header), grpc.Trailer(&trailer))
		if err != nil || len(out.GetPayload().GetBody()) != 100000 {
			t.Fatal(err)
		}
		if got := strings.Join(trailer.Get("x-trailer"), ""); got != "end" {
			t.Errorf("trailer %q", got)
		}
		if got := strings.Join(header.Get("x-bin-bin"), ""); got != "\x00\x01\xff" {
			t.Errorf("binary metadata %q", got)
		}
		q := origin(host).Requests()
		if got := strings.Join(q[len(q)-1].Header["Authorization"], "|"); got != "Bearer "+real {
			t.Errorf("the origin saw %q", got)
		}
	})
	t.Run("an error in trailers alone", func(t *testing.T) {
		_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: int32(codes.DataLoss), Message: "lost ünd gone"}})
		if st := status.Convert(err); st.Code() != codes.DataLoss || st.Message() != "lost ünd gone" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("server stream", func(t *testing.T) {
		st, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: 10}, {Size: 200000}, {Size: 1}}})
		n := 0
		for err == nil {
			if _, err = st.Recv(); err == nil {
				n++
			}
		}
		if err != io.EOF || n != 3 {
			t.Errorf("%d messages, %v", n, err)
		}
	})
	t.Run("client stream", func(t *testing.T) {
		st, err := client.StreamingInputCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := st.Send(&testpb.StreamingInputCallRequest{Payload: &testpb.Payload{Body: make([]byte, 10000)}}); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := st.CloseAndRecv(); err != nil || out.GetAggregatedPayloadSize() != 200000 {
			t.Errorf("%v %v", out, err)
		}
	})
	t.Run("both at once", func(t *testing.T) {
		st, err := client.FullDuplexCall(with)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if err := st.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte{byte(i)}}}); err != nil {
				t.Fatal(err)
			}
			if out, err := st.Recv(); err != nil || out.GetPayload().GetBody()[0] != byte(i) {
				t.Fatalf("message %d: %v %v", i, out, err)
			}
		}
		if err := st.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(); err != io.EOF {
			t.Errorf("the end: %v", err)
		}
	})
	t.Run("a refusal", func(t *testing.T) {
		leak := metadata.AppendToOutgoingContext(ctx, "x-other", "$API_KEY")
		_, err := client.UnaryCall(leak, &testpb.SimpleRequest{})
		if st := status.Convert(err); st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), "placeholder_place") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWS01WebSocket(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "ws01.good.test"
	dial := func(t *testing.T, ctx context.Context, s *lab.Sandbox, host, credential string, mode websocket.CompressionMode) (*websocket.Conn, *http.Response) {
		t.Helper()
		c, resp, err := websocket.Dial(ctx, "wss://"+host+"/lab/ws", &websocket.DialOptions{HTTPClient: s.Client(t, false), CompressionMode: mode,
			HTTPHeader: http.Header{"Authorization": {credential}}})
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(64 << 20)
		t.Cleanup(func() { _ = c.CloseNow() })
		return c, resp
	}
	for _, tt := range []struct {
		name, host, credential string
		s                      *lab.Sandbox
		mode                   websocket.CompressionMode
		negotiated             bool
	}{
		{"plain", host, "Bearer $API_KEY", s, websocket.CompressionDisabled, false},
		{"compression where a secret may be", host, "Bearer $API_KEY", s, websocket.CompressionContextTakeover, false},
		{"compression", "ws01.ws.test", "Bearer own", attached(t, "ws"), websocket.CompressionContextTakeover, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			s, host := tt.s, tt.host
			before := s.Mark()
			c, resp := dial(t, ctx, s, host, tt.credential, tt.mode)
			if got := resp.Header.Get("Sec-WebSocket-Extensions"); (got != "") != tt.negotiated {
				t.Errorf("extensions %q", got)
			}
			for _, size := range []int{0, 1, 125, 126, 70000, 3 << 20} {
				for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
					sent := bytes.Repeat([]byte("m"), size)
					if err := c.Write(ctx, kind, sent); err != nil {
						t.Fatal(err)
					}
					back, got, err := c.Read(ctx)
					if err != nil || back != kind || !bytes.Equal(got, sent) {
						t.Fatalf("%d bytes: %d came back: %v", size, len(got), err)
					}
				}
			}
			if err := c.Write(ctx, websocket.MessageText, []byte("close 4001")); err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != 4001 {
				t.Errorf("the close: %v", err)
			}
			s.Decided(t, before, append(connected(host), "ws allow rule_allow "+host))
		})
	}
	for _, q := range origin(host).Requests() {
		if got := strings.Join(q.Header["Authorization"], "|"); got != "Bearer "+real {
			t.Errorf("the origin saw %q", got)
		}
	}
	t.Run("bytes with the 101, and before it", func(t *testing.T) {
		const host = "ws01-raw.good.test"
		origin(host).SetProtocols("http/1.1")
		heard := make(chan []byte, 1)
		origin(host).SetScript(func(c lab.Conn, _ int) {
			b := make([]byte, 4096)
			n := 0
			for !bytes.Contains(b[:n], []byte("\r\n\r\n")) {
				m, err := c.Read(b[n:])
				if err != nil {
					return
				}
				n += m
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x05first")
			_, after, _ := bytes.Cut(b[:n], []byte("\r\n\r\n"))
			rest := make([]byte, 11-len(after))
			_, _ = io.ReadFull(c, rest)
			heard <- append(after, rest...)
		})
		w := s.Secure(t, host+":443")
		early := "\x81\x85\x00\x00\x00\x00early"
		w.Send(t, get("/", host, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")+early)
		got := w.Rest(t, 10*time.Second)
		if !strings.HasPrefix(got, "HTTP/1.1 101 ") || !strings.HasSuffix(got, "\r\n\r\n\x81\x05first") {
			t.Errorf("the client got %q", got)
		}
		if b := <-heard; string(b) != early {
			t.Errorf("the origin heard %q", b)
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		s := attached(t, "ws")
		before := s.Mark()
		w := s.Secure(t, "closed.ws2.test:443")
		w.Send(t, get("/lab/ws", "closed.ws2.test", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="))
		a := w.Answer(t, "GET")
		if a.Status != 403 {
			t.Errorf("got %d", a.Status)
		}
		s.Decided(t, before, append(connected("closed.ws2.test"), "ws deny "+a.Reason()+" closed.ws2.test"))
		silent(t, "closed.ws2.test")
	})
}
