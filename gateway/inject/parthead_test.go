package inject

import (
	"io"
	"strings"
	"testing"

	"sallyport/policy"
)

// endless gives a text again and again, and counts what is read.
type endless struct {
	text string
	n    int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text[e.n%len(e.text):])
	e.n += n
	return n, nil
}

// TestTheHeadOfAPartIsBounded: no more of one is read than is held, whichever
// part it is of, and whether it has lines or not.
func TestTheHeadOfAPartIsBounded(t *testing.T) {
	const part = "--b0\r\nContent-Disposition: form-data; name=\"a\"\r\n"
	for name, head := range map[string]string{
		"first":  part,
		"second": part + "\r\n" + strings.Repeat("x", 100<<10) + "\r\n" + part,
	} {
		for how, text := range map[string]string{"lines": "X-A: b\r\n", "one line": "x"} {
			rest := &endless{text: text}
			r := post(partType, "", true, asIs)
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(head), rest))
			_, _, err := sentBody(t, r, "v")
			if !isRefusal(err, policy.UninspectableBody) || rest.n > 2*maxPartHead {
				t.Errorf("%s, %s: %d bytes are read: %v", name, how, rest.n, err)
			}
		}
	}
	long := part + "X-A: " + strings.Repeat("b", maxPartHead-200) + "\r\n\r\nx\r\n--b0--\r\n"
	if _, _, err := sentBody(t, post(partType, long, true, asIs), "v"); err != nil {
		t.Errorf("a long head: %v", err)
	}
}
