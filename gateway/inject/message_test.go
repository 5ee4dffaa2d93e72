package inject

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"sallyport/policy"
	"sallyport/secrets"
)

func socketTable() *Table {
	return NewTable([]Secret{
		{Name: "WS_KEY", Spec: &policy.Secret{WebSocket: true}, Covers: covers(goodHost)},
		{Name: "API_KEY", Spec: &policy.Secret{}, Covers: covers(goodHost)},
	}, []string{"s1"}, testKey)
}

// clientFrame is a masked frame as a client sends it.
func clientFrame(first byte, payload string) string {
	b := []byte{first, 0x80}
	switch n := len(payload); {
	case n < 126:
		b[1] |= byte(n)
	case n <= 0xffff:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i&3])
	}
	return string(b)
}

// joined reads frames and returns "opcode:payload" of each message, and of
// control frames where they stand.
func joined(t testing.TB, stream string) (out []string) {
	t.Helper()
	var message strings.Builder
	var opcode byte
	for b := []byte(stream); len(b) > 0; {
		first, n, head := b[0], uint64(b[1]&0x7f), 2
		switch n {
		case 126:
			n, head = uint64(binary.BigEndian.Uint16(b[2:])), 4
		case 127:
			n, head = binary.BigEndian.Uint64(b[2:]), 10
		}
		mask := b[head : head+4]
		payload := append([]byte(nil), b[head+4:head+4+int(n)]...)
		for i := range payload {
			payload[i] ^= mask[i&3]
		}
		b = b[head+4+int(n):]
		if op := first & 0x0f; op >= opControl {
			out = append(out, fmt.Sprintf("%d:%s", op, payload))
			continue
		} else if op != opContinuation {
			opcode = op
		}
		message.Write(payload)
		if first&0x80 != 0 {
			out = append(out, fmt.Sprintf("%d:%s", opcode, message.String()))
			message.Reset()
		}
	}
	return out
}

func socketPlan(t testing.TB) (*Plan, map[string]secrets.Value) {
	t.Helper()
	r := request("GET", "https://good.test/ws", "Connection: Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Extensions: permessage-deflate")
	p, refusal := socketTable().Plan(input(r, "WS_KEY", "API_KEY"))
	if refusal != nil {
		t.Fatal(refusal)
	}
	values := map[string]secrets.Value{"WS_KEY": mustValue(t, `a"b`)}
	if err := p.Apply(r, values); err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("Sec-WebSocket-Extensions") != "" {
		t.Error("extensions are offered")
	}
	return p, values
}

func TestWS02TextMessages(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	for name, tt := range map[string]struct {
		frames string
		want   []string
		reason policy.Reason
	}{
		"plain":             {frames: clientFrame(0x81, "auth $WS_KEY"), want: []string{`1:auth a"b`}},
		"json":              {frames: clientFrame(0x81, ` {"k":"$WS_KEY"}`), want: []string{`1: {"k":"a\"b"}`}},
		"fragments":         {frames: clientFrame(0x01, "auth $WS") + clientFrame(0x89, "ping") + clientFrame(0x00, "_K") + clientFrame(0x80, "EY;"), want: []string{"9:ping", `1:auth a"b;`}},
		"empty fragments":   {frames: clientFrame(0x01, "") + clientFrame(0x00, "$WS_KEY") + clientFrame(0x80, ""), want: []string{`1:a"b`}},
		"empty":             {frames: clientFrame(0x81, ""), want: []string{"1:"}},
		"binary as it came": {frames: clientFrame(0x82, "$WS_KEY") + clientFrame(0x02, "$WS") + clientFrame(0x80, "_KEY"), want: []string{"2:$WS_KEY", "2:$WS_KEY"}},
		"control":           {frames: clientFrame(0x88, "\x03\xe8$WS_KEY"), want: []string{"8:\x03\xe8$WS_KEY"}},
		"long":              {frames: clientFrame(0x81, long+"$WS_KEY "+long), want: []string{"1:" + long + `a"b ` + long}},
		"many":              {frames: strings.Repeat(clientFrame(0x81, "$WS_KEY"), 300), want: strings.Split(strings.Repeat(`1:a"b|`, 299)+`1:a"b`, "|")},
		"another secret's":  {frames: clientFrame(0x81, "x") + clientFrame(0x81, "$API_KEY"), want: []string{"1:x"}, reason: policy.PlaceholderPlace},
		"compressed":        {frames: clientFrame(0xc1, "x"), reason: policy.UninspectableBody},
		"not masked":        {frames: "\x81\x01x", reason: policy.UninspectableBody},
		"stray fragment":    {frames: clientFrame(0x80, "x"), reason: policy.UninspectableBody},
		"message in one":    {frames: clientFrame(0x01, "x") + clientFrame(0x81, "y"), reason: policy.UninspectableBody},
		"unknown opcode":    {frames: clientFrame(0x83, "x"), reason: policy.UninspectableBody},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				p, values := socketPlan(t)
				got, err := io.ReadAll(p.Messages(&pieces{strings.NewReader(tt.frames), size}, values))
				var refusal *Refusal
				if errors.As(err, &refusal) != (tt.reason != "") || refusal != nil && refusal.Reason != tt.reason {
					t.Fatalf("error %v, want %q", err, tt.reason)
				}
				if a, b := strings.Join(joined(t, string(got)), "|"), strings.Join(tt.want, "|"); a != b {
					t.Errorf("got %.200q, want %.200q", a, b)
				}
			})
		}
	}
	t.Run("not where no secret may", func(t *testing.T) {
		r := request("GET", "https://good.test/ws", "Upgrade: websocket", "Sec-WebSocket-Extensions: permessage-deflate")
		p, refusal := socketTable().Plan(input(r, "API_KEY"))
		src := strings.NewReader("")
		if refusal != nil || len(p.Secrets()) != 0 || p.Messages(src, nil) != io.Reader(src) {
			t.Errorf("plan %+v, %v", p, refusal)
		}
	})
	t.Run("extensions stay where there is no secret", func(t *testing.T) {
		r := request("GET", "https://free.test/ws", "Upgrade: websocket", "Sec-WebSocket-Extensions: permessage-deflate")
		if p, refusal := socketTable().Plan(input(r, "API_KEY")); refusal != nil || !p.Empty() {
			t.Errorf("plan %+v, %v", p, refusal)
		}
	})
	t.Run("cut short", func(t *testing.T) {
		p, values := socketPlan(t)
		frame := clientFrame(0x81, "hello")
		if _, err := io.ReadAll(p.Messages(strings.NewReader(frame[:8]), values)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("error %v", err)
		}
	})
}

// TestWS02RealPeers sends messages of a real client through Messages to a
// real server.
// TestRefusedMessageInjectsNothing: of a message that is refused before a frame
// of it has left, no value has.
func TestRefusedMessageInjectsNothing(t *testing.T) {
	r := request("GET", "https://good.test/socket", "Upgrade: websocket", "Connection: Upgrade")
	p, refusal := socketTable().Plan(input(r, "WS_KEY", "API_KEY"))
	if refusal != nil {
		t.Fatal(refusal)
	}
	_, err := io.ReadAll(p.Messages(strings.NewReader(clientFrame(0x81, "$WS_KEY $API_KEY")), map[string]secrets.Value{"WS_KEY": mustValue(t, "v")}))
	if errors.As(err, &refusal); refusal == nil {
		t.Fatalf("error %v", err)
	}
	want := []Use{{Name: "API_KEY", Place: "websocket message", Action: Withheld, Count: 1}, {Name: "WS_KEY", Place: "websocket message", Action: Withheld, Count: 1}}
	if later := p.Later(); !slices.Equal(later, want) {
		t.Errorf("later %+v", later)
	}
}

func TestWS02RealPeers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, b) != nil {
				return
			}
		}
	}))
	defer server.Close()
	p, values := socketPlan(t)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &rewritten{Conn: c, plan: p, values: values}, nil
	}}}
	c, _, err := websocket.Dial(t.Context(), server.URL, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, n := range []int{0, 1, 200, 30000} {
		text := strings.Repeat("y", n)
		if err := c.Write(t.Context(), websocket.MessageText, []byte(text+" $WS_KEY")); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(t.Context()); err != nil || string(b) != text+` a"b` {
			t.Fatalf("got %.100q, %v", b, err)
		}
	}
}

// rewritten passes what is written after the head of the handshake through
// Messages.
type rewritten struct {
	net.Conn
	plan   *Plan
	values map[string]secrets.Value
	pipe   *io.PipeWriter
}

func (c *rewritten) Write(b []byte) (int, error) {
	if c.pipe == nil {
		if bytes.HasSuffix(b, []byte("\r\n\r\n")) {
			var r *io.PipeReader
			r, c.pipe = io.Pipe()
			go io.Copy(c.Conn, c.plan.Messages(r, c.values))
		}
		return c.Conn.Write(b)
	}
	return c.pipe.Write(b)
}

func (c *rewritten) Close() error {
	if c.pipe != nil {
		c.pipe.Close()
	}
	return c.Conn.Close()
}

func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		clientFrame(0x81, "auth $WS_KEY"), clientFrame(0x01, "a $WS") + clientFrame(0x80, "_KEY"), clientFrame(0x82, "\x00") + clientFrame(0x88, ""), "\x81\xfe\x00", "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00x",
	} {
		f.Add([]byte(s), uint8(2))
	}
	p, values := socketPlan(f)
	f.Fuzz(func(t *testing.T, stream []byte, n uint8) {
		whole, err := io.ReadAll(p.Messages(bytes.NewReader(stream), values))
		split, err2 := io.ReadAll(p.Messages(&pieces{bytes.NewReader(stream), int(n%9) + 1}, values))
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("whole %v, split %v", err, err2)
		}
		if err == nil && strings.Join(joined(t, string(whole)), "|") != strings.Join(joined(t, string(split)), "|") {
			t.Fatalf("whole %q, split %q", whole, split)
		}
	})
}

// TestFramesBehindWhatIsHeld: behind the beginning of a value frames can be sent
// for ever; they are not kept for ever.
func TestFramesBehindWhatIsHeld(t *testing.T) {
	const value = "REAL-8d0f7719ac-value"
	for name, tt := range map[string]struct {
		first, then string
		read        func(src io.Reader) io.Reader
	}{
		"received, pings": {"\x01\x06helloR", "\x89\x00", func(src io.Reader) io.Reader { return maskerOf(t, value).Messages(src, noHit) }},
		"received, empty": {"\x01\x06hello&", "\x00\x00", func(src io.Reader) io.Reader { return maskerOf(t, value).Messages(src, noHit) }},
		"sent, pings":     {clientFrame(0x01, value[:len(value)-1]), clientFrame(0x89, ""), guardOf(t, value).Messages},
	} {
		const most = 32 << 20
		src := &repeated{first: tt.first, then: tt.then, left: most}
		_, err := io.Copy(io.Discard, tt.read(src))
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != policy.UninspectableBody || src.left < most-(1<<20) {
			t.Errorf("%s: %d bytes were read, %v", name, most-src.left, err)
		}
	}
}

// repeated is first, and then a text over and over, until so many bytes were
// read.
type repeated struct {
	first, then string
	left        int
}

func (e *repeated) Read(b []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := copy(b, e.first)
	e.first = ""
	for n+len(e.then) <= len(b) {
		n += copy(b[n:], e.then)
	}
	e.left -= n
	return n, nil
}
