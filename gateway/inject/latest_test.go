package inject

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"sallyport/policy"
	"sallyport/secrets"
)

// turning is a stream in which a value comes into being: turn is called when
// the first piece has been read and the second one has come.
type turning struct {
	queue
	turn  func()
	first string // what has come before that
}

func (q *turning) Read(b []byte) (int, error) {
	if len(q.pieces) == 1 && q.turn != nil {
		q.turn()
		q.turn = nil
	}
	n, err := q.queue.Read(b)
	if q.turn != nil {
		q.first += string(b[:n])
	}
	return n, err
}

func heldOf(t testing.TB, values ...string) (held []secrets.Held) {
	for _, v := range values {
		held = append(held, secrets.Held{Name: "KEY", Value: mustValue(t, v)})
	}
	return held
}

// TestStreamsFollowRotation: a stream that was open when a value came in does
// not show it, whatever was held before, and not the one before it either.
func TestStreamsFollowRotation(t *testing.T) {
	const old, short = "REAL-old-6f0c1b7d22", "REAL-new-a9145e03cc"
	message := func(text string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))) + text
	}
	gzipped := func(text string) string { return packed(t, "gzip", text) }
	plain := func(text string) string { return text }
	for name, tt := range map[string]struct {
		wrap   func(string) string
		header http.Header
		status int
		opened func(*Masker, io.Reader) io.Reader // of an upgraded connection
	}{
		"body":   {wrap: plain},
		"gzip":   {wrap: gzipped, header: http.Header{"Content-Encoding": {"gzip"}}},
		"gRPC":   {wrap: message, header: http.Header{"Content-Type": {"application/grpc"}}},
		"packed": {wrap: func(s string) string { return "\x01" + message(gzipped(s))[1:] }, header: http.Header{"Content-Type": {"application/grpc"}, "Grpc-Encoding": {"gzip"}}},
		"range":  {wrap: plain, status: http.StatusPartialContent, header: http.Header{"Content-Range": {"bytes 1-9999/20000"}}},
		"text message": {wrap: func(s string) string { return serverFrame(0x81, s) },
			opened: func(m *Masker, src io.Reader) io.Reader { return m.Messages(src, noHit) }},
		"split message": {wrap: func(s string) string { return serverFrame(0x01, s[:9]) + serverFrame(0x80, s[9:]) },
			opened: func(m *Masker, src io.Reader) io.Reader { return m.Messages(src, noHit) }},
	} {
		for _, before := range [][]string{{old}, nil} {
			for size, fresh := range map[string]string{"short": short, "long": "REAL-" + strings.Repeat("f0c1b7d2", 1000)} {
				m := Nothing()
				if before != nil {
					m = NewGuard(heldOf(t, before...)).Masker([]string{"KEY"}, nil)
				}
				now := m
				after := NewGuard(heldOf(t, append(before, fresh)...)).Masker([]string{"KEY"}, nil)
				first, second := "it was quiet until now", "it is "+fresh+", and was "+strings.Join(before, "")
				src := &turning{queue{[]string{tt.wrap(first), tt.wrap(second)}}, func() { now = after }, ""}
				if name == "gzip" {
					whole := tt.wrap(first + second) // its first bytes hold nothing that can be read
					src.pieces = []string{whole[:10], whole[10:]}
				}
				followed := m.Following(func() *Masker { return now })
				live := &followed
				var r io.Reader
				trailer := http.Header{"X-Key": {fresh}}
				if tt.opened != nil {
					r, trailer = tt.opened(live, src), nil
				} else {
					resp := &http.Response{StatusCode: max(tt.status, 200), Header: tt.header.Clone(), Body: io.NopCloser(src), ContentLength: -1}
					if resp.Header == nil {
						resp.Header = http.Header{}
					}
					if err := live.Response(resp, func(string, string) {}); err != nil {
						t.Fatal(err)
					}
					resp.Trailer, r = trailer, resp.Body // it has come by the end
				}
				got, err := io.ReadAll(r)
				text := string(got)
				if before == nil && (name == "gRPC" || name == "packed" || name == "range") {
					if !errors.Is(err, errCameIn) || text != src.first {
						t.Errorf("%s, nothing before: %v, %.200q", name, err, text)
					}
					continue
				}
				if name == "gzip" {
					text = unpacked(t, got)
				}
				if err != nil || !strings.Contains(text, "until now") || strings.Count(text, "*") < len(fresh) || strings.Contains(text, fresh) || strings.Contains(text, old) {
					t.Errorf("%s, %s, before %q: %v, %.200q", name, size, before, err, text)
				}
				if trailer != nil && trailer.Get("X-Key") != strings.Repeat("*", len(fresh)) {
					t.Errorf("%s, before %q: trailer %.200q", name, before, trailer)
				}
			}
		}
	}
}

func unpacked(t testing.TB, b []byte) string {
	t.Helper()
	r, err := codecOf("gzip")
	if err != nil {
		t.Fatal(err)
	}
	dec, err := r.decoder(strings.NewReader(string(b)), &lease{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(dec)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSentStreamsFollowRotation: neither does a value go out in a body or a
// message that was being sent when it came in.
func TestSentStreamsFollowRotation(t *testing.T) {
	const old, fresh = "REAL-old-6f0c1b7d22", "REAL-new-a9145e03cc"
	plain := func(text string) string { return text }
	frame := func(text string) string { return clientFrame(0x81, text) }
	for name, tt := range map[string]struct {
		wrap func(string) string
		open func(io.Reader, func() *Guard) io.Reader
	}{
		"body":          {plain, func(r io.Reader, now func() *Guard) io.Reader { return WatchBody(r, "body", now) }},
		"message":       {frame, WatchMessages},
		"split message": {func(s string) string { return clientFrame(0x01, s[:12]) + clientFrame(0x80, s[12:]) }, WatchMessages},
		"ping":          {func(s string) string { return clientFrame(0x89, s) }, WatchMessages},
	} {
		for _, before := range [][]string{{old}, nil} {
			for _, sent := range append(before, fresh, "harmless, as most are") {
				now := NewGuard(heldOf(t, before...))
				after := NewGuard(heldOf(t, append(before, fresh)...))
				src := &turning{queue{[]string{tt.wrap("all is quiet"), tt.wrap("it is " + sent)}}, func() { now = after }, ""}
				want := tt.wrap("all is quiet") + tt.wrap("it is "+sent)
				got, err := io.ReadAll(tt.open(src, func() *Guard { return now }))
				var refused *Refusal
				switch {
				case strings.HasPrefix(sent, "harmless"):
					if err != nil || string(got) != want {
						t.Errorf("%s, before %q: %v, %q", name, before, err, got)
					}
				case !errors.As(err, &refused) || refused.Reason != policy.SecretExfiltration:
					t.Errorf("%s, before %q: %q went out with %v", name, before, sent, err)
				}
			}
		}
	}
	// Values that are forgotten while something is held back.
	now := NewGuard(heldOf(t, old))
	src := &turning{queue{[]string{"it is " + old[:len(old)-1], " and no more"}}, func() { now = NewGuard(nil) }, ""}
	if got, err := io.ReadAll(WatchBody(src, "body", func() *Guard { return now })); err != nil || string(got) != "it is "+old[:len(old)-1]+" and no more" {
		t.Errorf("%q, %v", got, err)
	}
}
