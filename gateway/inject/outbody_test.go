package inject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// inBuffers reads r to its end, each time into a buffer of another size.
func inBuffers(r io.Reader, sizes ...int) (out []byte, err error) {
	for i := 0; err == nil; i++ {
		var n int
		b := make([]byte, sizes[i%len(sizes)])
		n, err = r.Read(b)
		out = append(out, b[:n]...)
	}
	return out, err
}

// TestABodyIsWatchedInAnyBuffer: whatever is read into and however the body
// comes, beginnings of values go through as they are and no whole one does.
func TestABodyIsWatchedInAnyBuffer(t *testing.T) {
	g := guardOf(t, talk)
	random := rand.New(rand.NewPCG(5, 6))
	forms := append(encodings(talk), escapeAll(talk))
	for round := range 40 {
		var text strings.Builder
		for range 1 + random.IntN(30) {
			form := forms[random.IntN(len(forms))]
			text.WriteString(form[:random.IntN(len(form)-2)] + "!")
			text.WriteString(strings.Repeat("x", random.IntN(3000)))
		}
		body, n := text.String(), 1+random.IntN(1<<random.IntN(17))
		sizes := []int{1 + random.IntN(100), inPlace - 1 + random.IntN(3), 1 + random.IntN(1<<17)}
		random.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
		got, err := inBuffers(g.Body(&pieces{strings.NewReader(body), n}, "body"), sizes...)
		if err != io.EOF || string(got) != body {
			t.Fatalf("round %d, buffers of %v, pieces of %d: %d bytes of %d came: %v", round, sizes, n, len(got), len(body), err)
		}
		value := forms[random.IntN(len(forms))]
		got, err = inBuffers(g.Body(&pieces{strings.NewReader(body + value + body), n}, "body"), sizes...)
		var refusal *Refusal
		if !errors.As(err, &refusal) || bytes.Contains(got, []byte(value)) || len(got) >= len(body)+len(value) {
			t.Fatalf("round %d, buffers of %v, pieces of %d: %d bytes of %d came: %v", round, sizes, n, len(got), len(body), err)
		}
	}
}

// TestAWatchedBodyComesAsItIsRead: a large buffer is filled by one read of what
// is watched, and needs no other.
func TestAWatchedBodyComesAsItIsRead(t *testing.T) {
	g := guardOf(t, talk)
	for _, size := range []int{inPlace, 64 << 10} {
		r := g.Body(strings.NewReader(strings.Repeat("x", 1<<20)), "body")
		b := make([]byte, size)
		if n, err := r.Read(b); n != size || err != nil {
			t.Errorf("%d bytes of %d came: %v", n, size, err)
		}
		if got := testing.AllocsPerRun(10, func() { _, _ = r.Read(b) }); got > 0 {
			t.Errorf("%v allocations a read of %d bytes", got, size)
		}
	}
}

func BenchmarkWatchedBody(b *testing.B) {
	g := guardOf(b, "sk-REAL-000001-abcdefghijklmnopqrstuv")
	for name, text := range map[string][]byte{"zeros": make([]byte, 64<<10), "json": []byte(strings.Repeat(`{"name":"a","value":[1,2,3]},`+"\n", 2200))} {
		for _, size := range []int{4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				into := make([]byte, size)
				src := bytes.NewReader(text)
				r := g.Body(struct{ io.Reader }{src}, "body")
				for b.Loop() {
					src.Reset(text)
					for src.Len() > 0 {
						if _, err := r.Read(into); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
