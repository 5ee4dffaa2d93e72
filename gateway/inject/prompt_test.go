package inject

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"sallyport/secrets"
)

// conversation is a source of whole messages that are sent one by one, each
// cut into reads at random. A read behind the last piece of a message blocks
// in life; here it ends the message.
type conversation struct {
	random *rand.Rand
	rest   []byte
}

var errWaits = fmt.Errorf("nothing more comes before an answer does")

func (c *conversation) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		panic(errWaits)
	}
	n := copy(b, c.rest[:min(len(c.rest), 1+c.random.IntN(len(b)))])
	c.rest = c.rest[n:]
	return n, nil
}

// said reads from r until it would wait.
func said(r io.Reader) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil && p != any(errWaits) {
			panic(p)
		}
	}()
	b := make([]byte, 32<<10)
	for {
		n, err := r.Read(b)
		out = append(out, b[:n]...)
		if err != nil {
			return out, err
		}
	}
}

// serverFrame is a frame without a mask.
func serverFrame(first byte, payload string) string {
	head := []byte{first}
	switch n := len(payload); {
	case n < 126:
		head = append(head, byte(n))
	case n <= 0xffff:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	return string(head) + payload
}

// endings are texts that end as a value of talk, or an encoding of it,
// begins.
func endings(value string) []string {
	out := []string{"", "m"}
	for _, p := range encodings(value) {
		for n := range len(p) {
			out = append(out, "so "+p[:n])
		}
	}
	return out
}

const talk = "REAL-7f3a9c51e2d84b06-value"

// TestWS01MessagesComeWhole: a message is passed on to its last byte before
// another one is waited for, whatever it ends in and however it is cut.
func TestWS01MessagesComeWhole(t *testing.T) {
	held := []secrets.Held{{Name: "API_KEY", Value: mustValue(t, talk)}}
	g := NewGuard(held)
	random := rand.New(rand.NewPCG(1, 2))
	for name, tt := range map[string]struct {
		frame  func(first byte, payload string) string
		reader func(io.Reader) io.Reader
	}{
		"from the client":   {clientFrame, g.Messages},
		"from the upstream": {serverFrame, func(r io.Reader) io.Reader { return g.Masker([]string{"API_KEY"}, nil).Messages(r, noHit) }},
	} {
		c := &conversation{random: random}
		r := tt.reader(c)
		for i, text := range append(endings(talk), strings.Repeat("m", 126), strings.Repeat("m", 70000), strings.Repeat("R", 200000)) {
			for _, frames := range []string{
				tt.frame(0x81, text), tt.frame(0x82, text), tt.frame(0x01, text[:len(text)/2]) + tt.frame(0x89, "ping R") + tt.frame(0x80, text[len(text)/2:]),
				tt.frame(0x01, text) + tt.frame(0x80, ""), tt.frame(0x8a, ""),
			} {
				c.rest = []byte(frames)
				if got, err := said(r); err != nil || string(got) != frames {
					t.Fatalf("%s, %d: %d bytes of %d came: %v", name, i, len(got), len(frames), err)
				}
			}
		}
	}
}

// TestH113StreamsComeWhole: what a peer of a stream waits for is passed on to
// its last byte, unless it ends in a long piece of a value.
func TestH113StreamsComeWhole(t *testing.T) {
	g := NewGuard([]secrets.Held{{Name: "API_KEY", Value: mustValue(t, talk)}})
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"to the upstream":   func(r io.Reader) io.Reader { return g.Body(r, "body") },
		"from the upstream": func(r io.Reader) io.Reader { return g.Masker([]string{"API_KEY"}, nil).Reader(r, noHit) },
	} {
		c := &conversation{random: rand.New(rand.NewPCG(1, 2))}
		r := reader(c)
		for range 50 {
			for _, p := range encodings(talk) {
				for n := range slightMost + 1 {
					c.rest = []byte("so " + p[:n])
					if got, err := said(r); err != nil || string(got) != "so "+p[:n] {
						t.Fatalf("%s: %q of %q came: %v", name, got, "so "+p[:n], err)
					}
				}
			}
		}
		for _, p := range encodings(talk) { // after its beginning a value is known all the same
			c.rest = []byte(" " + p[:2])
			if got, err := said(r); string(got) != " "+p[:2] {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
			c.rest = []byte(p[2:] + " ")
			got, err := said(r)
			if want := strings.Repeat("*", len(p)-2) + " "; string(got) != want && err == nil {
				t.Errorf("%s: %q of %q, %v", name, got, p, err)
			}
			if err != nil {
				r = reader(c)
			}
		}
	}
}

// TestWS01ValuesInMessagesAreCovered: a value is covered however it is cut
// into frames and reads, and nothing else is.
func TestWS01ValuesInMessagesAreCovered(t *testing.T) {
	g := NewGuard([]secrets.Held{{Name: "API_KEY", Value: mustValue(t, talk)}})
	stars := strings.Repeat("*", len(talk))
	for name, tt := range map[string]struct{ sent, want string }{
		"text":      {serverFrame(0x81, "x"+talk+"y") + serverFrame(0x81, talk), serverFrame(0x81, "x"+stars+"y") + serverFrame(0x81, stars)},
		"fragments": {serverFrame(0x01, "x"+talk[:9]) + serverFrame(0x89, talk) + serverFrame(0x80, talk[9:]+"y"), serverFrame(0x01, "x"+stars[:9]) + serverFrame(0x89, stars) + serverFrame(0x80, stars[9:]+"y")},
		"close":     {serverFrame(0x88, "\x03\xe8bad key "+talk), serverFrame(0x88, "\x03\xe8bad key "+stars)},
		"cut":       {serverFrame(0x81, talk) + "\x81\x7e\x01", serverFrame(0x81, stars) + "\x81\x7e\x01"},
	} {
		for n := 1; n < len(tt.sent); n++ {
			hits := 0
			got, err := io.ReadAll(g.Masker([]string{"API_KEY"}, nil).Messages(&pieced{[]byte(tt.sent), n}, func(string) { hits++ }))
			if err != nil || string(got) != tt.want || hits == 0 {
				t.Errorf("%s, %d bytes at once: %q: %v", name, n, got, err)
			}
		}
	}
	if _, err := io.ReadAll(g.Masker([]string{"API_KEY"}, nil).Messages(strings.NewReader(clientFrame(0x81, talk)), noHit)); err == nil {
		t.Error("a masked frame of a server passes")
	}
}

// FuzzMessagesAreCovered: no value comes through, and lengths stay.
func FuzzMessagesAreCovered(f *testing.F) {
	f.Add([]byte(serverFrame(0x01, talk[:9])+serverFrame(0x89, talk)+serverFrame(0x80, talk[9:])), 3)
	f.Add([]byte("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 9)
	f.Add([]byte("\x89\x7d"), 1)
	m := NewGuard([]secrets.Held{{Name: "API_KEY", Value: mustValue(f, talk)}}).Masker([]string{"API_KEY"}, nil)
	f.Fuzz(func(t *testing.T, sent []byte, cut int) {
		whole, err := io.ReadAll(m.Messages(bytes.NewReader(sent), noHit))
		pieces, err2 := io.ReadAll(m.Messages(&pieced{sent, cut&63 + 1}, noHit))
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v and %v", err, err2)
		}
		if err == nil && (len(whole) != len(sent) || !bytes.Equal(whole, pieces)) {
			t.Fatalf("%q and %q of %q", whole, pieces, sent)
		}
	})
}
