package inject

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport/policy"
	"sallyport/secrets"
)

const maxForm = 16 << 20

// applied is what Apply makes of a form of parts of which left bytes may be held,
// and how many it holds then and has held at most.
func applied(t *testing.T, body, coding string, left int64, how func(io.Reader) io.Reader) (got string, holds, peak int64, err error) {
	t.Helper()
	spec := &policy.Secret{Body: &policy.BodyPlace{Fields: []string{"token"}, Max: maxForm}}
	table := NewTable([]Secret{{Name: "BODY_KEY", Spec: spec, Covers: covers(goodHost)}}, []string{"s1"}, testKey)
	r := post(partType, body, false, how)
	if coding != "" {
		r.Header.Set("Content-Encoding", coding)
	}
	p, refusal := table.Plan(input(r, "BODY_KEY"))
	if refusal != nil {
		t.Fatal(refusal)
	}
	p.Hold(func(n int64) bool {
		if holds+n > left {
			return false
		}
		holds += n
		peak = max(peak, holds)
		return true
	})
	if err := p.Apply(r, map[string]secrets.Value{"BODY_KEY": mustValue(t, "realvalue-0123")}); err != nil {
		return "", holds, peak, err
	}
	before := p.Later()
	for range 2 { // once more, as a transport that tries again
		b, err := io.ReadAll(r.Body)
		if err != nil || int64(len(b)) != r.ContentLength {
			t.Fatalf("%d bytes of %d: %v", len(b), r.ContentLength, err)
		}
		if got != "" && got != string(b) {
			t.Fatal("it is another body the second time")
		}
		got = string(b)
		if r.Body, err = r.GetBody(); err != nil {
			t.Fatal(err)
		}
	}
	if after := p.Later(); len(after) != len(before) {
		t.Errorf("on record %v, then %v", before, after)
	}
	return got, holds, peak, nil
}

// TestAFormOfPartsIsHeldOnce: with a value in it, before its files or behind
// them, or without one.
func TestAFormOfPartsIsHeldOnce(t *testing.T) {
	for _, n := range []int{100, 4 << 10, 3 << 20, 9 << 20, 15 << 20} {
		file := strings.Repeat("x", n)
		for name, list := range map[string][]string{
			"before":  {"token", "$BODY_KEY", "file", file},
			"behind":  {"file", file, "token", "$BODY_KEY"},
			"without": {"file", file},
		} {
			body := parts(list...)
			got, holds, peak, err := applied(t, body, "", int64(len(body)), asIs)
			if want := strings.ReplaceAll(body, "$BODY_KEY", "realvalue-0123"); err != nil || got != want {
				t.Fatalf("%s, %d: %d bytes of %d, %v", name, n, len(got), len(want), err)
			}
			if holds != int64(len(body)) || peak != holds {
				t.Errorf("%s: of %d bytes %d are held, and %d were", name, len(body), holds, peak)
			}
			if _, _, _, err := applied(t, body, "", int64(len(body))-1, asIs); !isRefusal(err, policy.RateLimited) {
				t.Errorf("%s, %d: %v", name, n, err)
			}
		}
	}
}

// TestAFormOfPartsInAnyPieces: what goes out is what was judged, however the
// body came.
func TestAFormOfPartsInAnyPieces(t *testing.T) {
	body := "before\r\n" + parts("a", strings.Repeat("--bx\n$BODY", 3*bodyChunk/10), "token", strings.Repeat("$BODY_KEY--b", 50), "$FOO", "b") + "behind"
	want, _, _, err := applied(t, body, "", maxForm, asIs)
	if err != nil || strings.Count(want, "realvalue-0123") != 50 {
		t.Fatalf("%.100q, %v", want, err)
	}
	for _, how := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
		if got, _, _, err := applied(t, body, "", maxForm, how); err != nil || got != want {
			t.Errorf("%.100q, %v", got, err)
		}
	}
}

// TestAPackedBodyAsksForWhatItHolds: a refusal for want of room stays one
// behind every decoder.
func TestAPackedBodyAsksForWhatItHolds(t *testing.T) {
	noise := make([]byte, 64<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	body := parts("token", "$BODY_KEY", "file", string(noise))
	for coding := range compressors() {
		sent := packed(t, coding, body)
		if _, _, _, err := applied(t, sent, coding, 8<<10, asIs); !isRefusal(err, policy.RateLimited) {
			t.Errorf("%s: %v", coding, err)
		}
		got, _, _, err := applied(t, sent, coding, 1<<20, asIs)
		plain, rerr := io.ReadAll(decompress(t, coding, bytes.NewReader([]byte(got))))
		if err != nil || rerr != nil || !strings.Contains(string(plain), "realvalue-0123") {
			t.Errorf("%s: %v %v", coding, err, rerr)
		}
	}
}
