package inject

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"sallyport/policy"
	"sallyport/secrets"
)

// TestMessagesAreWatched: a value in a text or binary message is found however
// it is cut into frames and reads; nothing else is changed.
func TestMessagesAreWatched(t *testing.T) {
	g := NewGuard([]secrets.Held{{Name: "API_KEY", Value: mustValue(t, "REAL-8d0f7719ac-value")}})
	ping := clientFrame(0x89, "are you there")
	for name, tt := range map[string]struct {
		frames  string
		refused bool
	}{
		"text":              {clientFrame(0x81, "x REAL-8d0f7719ac-value y"), true},
		"binary":            {clientFrame(0x82, "REAL-8d0f7719ac-value"), true},
		"hex":               {clientFrame(0x81, "5245414c2d386430663737313961632d76616c7565"), true},
		"fragments":         {clientFrame(0x01, "x REAL-8d0f") + ping + clientFrame(0x80, "7719ac-value"), true},
		"second message":    {clientFrame(0x81, "hello") + clientFrame(0x81, "REAL-8d0f7719ac-value"), true},
		"over two messages": {clientFrame(0x81, "REAL-8d0f") + clientFrame(0x81, "7719ac-value"), false},
		"begins like it":    {clientFrame(0x81, "REAL-8d0f7719") + ping, false},
		"empty":             {clientFrame(0x81, "") + ping + clientFrame(0x88, ""), false},
		"compressed":        {clientFrame(0xc1, "REAL-8d0f7719ac-value"), false},
		"cut short":         {clientFrame(0x81, "hello")[:4], false},
	} {
		for cut, src := range map[string]io.Reader{"whole": bytes.NewReader([]byte(tt.frames)), "in bytes": iotest.OneByteReader(bytes.NewReader([]byte(tt.frames)))} {
			got, err := io.ReadAll(g.Messages(src))
			var refusal *Refusal
			if errors.As(err, &refusal) != tt.refused || tt.refused && refusal.Reason != policy.SecretExfiltration {
				t.Errorf("%s, %s: %v", name, cut, err)
			}
			if !tt.refused && string(got) != tt.frames {
				t.Errorf("%s, %s: %q came through, not %q", name, cut, got, tt.frames)
			}
		}
	}
}

// FuzzMessagesAreWatched: what comes through is what was sent, up to where it
// was refused.
func FuzzMessagesAreWatched(f *testing.F) {
	f.Add([]byte(clientFrame(0x81, "REAL-8d0f7719ac-value")), 3)
	f.Add([]byte(clientFrame(0x01, "REAL"))[:5], 1)
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 9)
	g := NewGuard([]secrets.Held{{Name: "API_KEY", Value: mustValue(f, "REAL-8d0f7719ac-value")}})
	f.Fuzz(func(t *testing.T, sent []byte, cut int) {
		whole, err := io.ReadAll(g.Messages(bytes.NewReader(sent)))
		pieces, err2 := io.ReadAll(g.Messages(&pieced{sent, cut&63 + 1}))
		if (err == nil) != (err2 == nil) || !bytes.HasPrefix(sent, whole) || !bytes.HasPrefix(sent, pieces) {
			t.Fatalf("%q and %q of %q, %v and %v", whole, pieces, sent, err, err2)
		}
		if err == nil && (len(whole) != len(sent) || len(pieces) != len(sent)) {
			t.Fatalf("%d and %d bytes of %d", len(whole), len(pieces), len(sent))
		}
	})
}

type pieced struct {
	rest []byte
	n    int
}

func (p *pieced) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.n, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}
