package inject

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sallyport/policy"
)

// TestSEC31RealValueInNamesOfFields: a value that is the name of a header or of
// a trailer, in any case and escaped, is found, and no record repeats it.
func TestSEC31RealValueInNamesOfFields(t *testing.T) {
	const value = "REALkey/0123456789+Value"
	g := guardOf(t, value)
	for name, field := range map[string]string{
		"hex":           hex.EncodeToString([]byte(value)),
		"upper hex":     strings.ToUpper(hex.EncodeToString([]byte(value))),
		"base64":        strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(value)), "="),
		"lower escaped": strings.ToLower(strings.NewReplacer("/", "%2F", "+", "%2b").Replace(value)),
		"all escaped":   escapeAll(value),
		"some escaped":  strings.NewReplacer("/", "%2F", "1", "%31", "+", "&#43;").Replace(value),
		"in a name":     "X-" + hex.EncodeToString([]byte(value)) + "-y",
		"over dots":     strings.ReplaceAll(hex.EncodeToString([]byte(value)), "61", "6.1"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{http.CanonicalHeaderKey(field), strings.ToLower(field)} {
				r := request("GET", "https://allowed.test/")
				r.Header[key] = []string{"1", value}
				wantExfiltration(t, g.Request(r))
				if shown := fmt.Sprint(g.Request(r)); strings.Contains(strings.ToLower(shown), strings.ToLower(field)) {
					t.Errorf("the refusal repeats it: %s", shown)
				}
				r = request("POST", "https://allowed.test/")
				r.Trailer = http.Header{key: nil}
				wantExfiltration(t, g.Request(r))
			}
		})
	}
	host := request("GET", "https://allowed.test/")
	host.Host = hex.EncodeToString([]byte(value))[:20] + "." + strings.ToUpper(hex.EncodeToString([]byte(value))[20:]) + ".allowed.test"
	wantExfiltration(t, g.Request(host))
	if r := g.Request(request("GET", "https://allowed.test/", "X-Realkey: 1", "X-0123456789: 1")); r != nil {
		t.Errorf("refusal %+v", r)
	}
}

// TestSEC31TrailersComeLast: trailers are looked at when they have come, with
// the values that are held by then.
func TestSEC31TrailersComeLast(t *testing.T) {
	const value = "REALkey0123456789Value"
	empty, full := NewGuard(nil), guardOf(t, value)
	for name, trailer := range map[string]http.Header{
		"none": {}, "other": {"X-Sum": {"1"}}, "value": {"X-Sum": {"a " + value}}, "name": {http.CanonicalHeaderKey(value): {"1"}},
	} {
		r, now := request("POST", "https://allowed.test/"), empty
		src := WatchTrailers(io.MultiReader(strings.NewReader("body"), readerFunc(func([]byte) (int, error) {
			r.Trailer, now = trailer, full
			return 0, io.EOF
		})), r, func() *Guard { return now })
		got, err := io.ReadAll(src)
		var refusal *Refusal
		if errors.As(err, &refusal) != (name == "value" || name == "name") || string(got) != "body" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if refusal != nil && refusal.Reason != policy.SecretExfiltration {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
