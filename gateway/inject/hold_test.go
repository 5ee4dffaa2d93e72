package inject

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sallyport/secrets"
)

// oneByOne is a conversation in which each of the pieces is a message of its
// own, read whole.
type oneByOne struct{ rest []byte }

func (o *oneByOne) Read(b []byte) (int, error) {
	if len(o.rest) == 0 {
		panic(errWaits)
	}
	n := copy(b, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

// beginnings are the first n eighths of every form of a value.
func beginnings(value string, n int) []string {
	var out []string
	for _, p := range encodings(value) {
		out = append(out, p[:len(p)*n/8])
	}
	piece := value[:len(value)*n/8]
	return append(out, escapeAll(piece), mixed(piece, "&#x%X;", "&#%d;", true))
}

// TestABeginningIsNotHeldBack: what an upstream sees of a request's pace tells
// nothing of a value of which the sandbox has up to half.
func TestABeginningIsNotHeldBack(t *testing.T) {
	held := []secrets.Held{{Name: "API_KEY", Value: mustValue(t, talk)}}
	g := NewGuard(held)
	for n := 1; n <= 4; n++ {
		for _, p := range beginnings(talk, n) {
			body := &oneByOne{[]byte("so " + p)}
			if got, err := said(g.Body(body, "body")); err != nil || string(got) != "so "+p {
				t.Errorf("body: %q of %q came: %v", got, "so "+p, err)
			}
			whole := clientFrame(0x81, "so "+p+strings.Repeat("x", 30)) // the message goes on
			sent := whole[:len(whole)-30]
			message := &oneByOne{[]byte(sent)}
			if got, err := said(g.Messages(message)); err != nil || string(got) != sent {
				t.Errorf("message: %q of %q came: %v", got, sent, err)
			}
		}
	}
	for _, p := range beginnings(talk, 7) {
		body := &oneByOne{[]byte("so " + p)}
		if got, _ := said(g.Body(body, "body")); string(got) != "so " {
			t.Errorf("body: %q of %q came", got, "so "+p)
		}
	}
}

// TestAValueInAnySplitIsStopped: however a body or a message is cut, the whole
// value does not go out.
func TestAValueInAnySplitIsStopped(t *testing.T) {
	g := NewGuard([]secrets.Held{{Name: "API_KEY", Value: mustValue(t, talk)}})
	for _, p := range append(encodings(talk), escapeAll(talk)) {
		for cut := 1; cut < len(p); cut++ {
			texts := []string{"so " + p[:cut], p[cut:] + " on"}
			frames := clientFrame(0x81, texts[0]+texts[1])
			at := len(frames) - len(texts[1])
			for name, r := range map[string]io.Reader{
				"body":      g.Body(&queue{[]string{texts[0], texts[1]}}, "body"),
				"message":   g.Messages(&queue{[]string{frames[:at], frames[at:]}}),
				"fragments": g.Messages(&queue{[]string{clientFrame(0x01, texts[0]), clientFrame(0x80, texts[1])}}),
				"bytes":     g.Body(&queue{strings.Split(strings.Join(texts, ""), "")}, "body"),
			} {
				got, err := io.ReadAll(r)
				var refusal *Refusal
				if !errors.As(err, &refusal) || strings.Contains(string(got), p) {
					t.Fatalf("%s, cut at %d of %q: %q, %v", name, cut, p, got, err)
				}
				if most := len("so ") + max(cut, holdFrom(len(p))); name == "body" && len(got) > most {
					t.Fatalf("%s: %d bytes of %q went out", name, len(got), fmt.Sprint(texts))
				}
			}
		}
	}
}

// queue gives one piece for each read.
type queue struct{ pieces []string }

func (q *queue) Read(b []byte) (int, error) {
	if len(q.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, q.pieces[0])
	if q.pieces[0] = q.pieces[0][n:]; q.pieces[0] == "" {
		q.pieces = q.pieces[1:]
	}
	return n, nil
}
