package inject

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport/policy"
)

// packed is text in a coding.
func packed(t testing.TB, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := compressors()[coding](&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestBodyCompressed: placeholders in a compressed body are replaced, in
// every coding and however it comes; one without a placeholder goes out as it
// was sent.
func TestBodyCompressed(t *testing.T) {
	for coding := range compressors() {
		for _, chunked := range []bool{false, true} {
			for how, cut := range map[string]func(io.Reader) io.Reader{"at once": asIs, "in bytes": iotest.OneByteReader} {
				body := packed(t, coding, `{"auth":{"token":"$BODY_KEY"},"n":1.50}`)
				r := post(jsonType, body, chunked, cut)
				r.Header.Set("Content-Encoding", coding)
				got, out, err := sentBody(t, r, "REAL-value")
				if err != nil {
					t.Fatalf("%s, chunked=%v, %s: %v", coding, chunked, how, err)
				}
				plain, err := io.ReadAll(decompress(t, coding, strings.NewReader(got)))
				if err != nil || string(plain) != `{"auth":{"token":"REAL-value"},"n":1.50}` {
					t.Errorf("%s, chunked=%v, %s: %q %v", coding, chunked, how, plain, err)
				}
				if out.ContentLength != int64(len(got)) && !chunked || chunked && out.ContentLength != -1 {
					t.Errorf("%s: length %d of %d", coding, out.ContentLength, len(got))
				}
			}
		}
		body := packed(t, coding, `{"n": 1.50}`)
		r := post(jsonType, body, false, asIs)
		r.Header.Set("Content-Encoding", coding)
		if got, _, err := sentBody(t, r, "v"); err != nil || got != body {
			t.Errorf("%s: a body without a placeholder was changed: %v", coding, err)
		}
	}
}

// TestBodyCompressedRefused: what is compressed is judged as if it were not,
// and a bomb is not taken.
func TestBodyCompressedRefused(t *testing.T) {
	bomb := `{"data":"` + strings.Repeat("0", 64<<20) + `"}`
	for name, tt := range map[string]struct {
		plain   string
		chunked bool
		cut     bool
		want    policy.Reason
	}{
		"bomb, announced":   {plain: bomb, want: policy.BodyTooLarge},
		"bomb, streamed":    {plain: bomb, chunked: true, want: policy.BodyTooLarge},
		"another field":     {plain: `{"comment":"$BODY_KEY"}`, want: policy.PlaceholderPlace},
		"a real value":      {plain: `{"comment":"REAL-value-4f1c"}`, want: policy.SecretExfiltration},
		"cut off":           {plain: `{"n":"` + strings.Repeat("x", 1000) + `"}`, cut: true, want: policy.UninspectableBody},
		"too long to hold":  {plain: `{"n":"` + incompressible(3<<19) + `"}`, want: policy.BodyTooLarge},
		"long but streamed": {plain: `{"n":"` + incompressible(3<<19) + `"}`, chunked: true},
	} {
		for _, coding := range []string{"gzip", "zstd"} {
			body := packed(t, coding, tt.plain)
			if tt.cut {
				body = body[:len(body)/2]
			}
			r := post(jsonType, body, tt.chunked, asIs)
			r.Header.Set("Content-Encoding", coding)
			_, _, err := sentBody(t, r, "REAL-value-4f1c")
			var refusal *Refusal
			if errors.As(err, &refusal) != (tt.want != "") || refusal != nil && refusal.Reason != tt.want {
				t.Errorf("%s, %s: %v, want %q", name, coding, err, tt.want)
			}
		}
	}
}

// incompressible is text of n bytes that compresses little.
func incompressible(n int) string {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[x&63]
	}
	return string(b)
}
