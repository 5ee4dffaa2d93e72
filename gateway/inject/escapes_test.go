package inject

import (
	"fmt"
	"html"
	"strings"
	"testing"

	"sallyport/secrets"
)

// asciiNames are the names of HTML for characters of ASCII (HTML, section
// 13.5, "Named character references"); the last is one for two.
const asciiNames = `Tab NewLine excl quot QUOT num dollar percnt amp AMP apos lpar rpar ast midast plus comma period sol
	colon semi lt LT equals gt GT quest commat lsqb lbrack bsol rsqb rbrack Hat lowbar UnderBar grave DiacriticalGrave
	lcub lbrace verbar vert VerticalLine rcub rbrace fjlig`

// TestNamesOfHTML: every such name is read, also where the text is cut in it.
func TestNamesOfHTML(t *testing.T) {
	for name := range strings.FieldsSeq(asciiNames) {
		text := "&" + name + ";"
		want := html.UnescapeString(text)
		u := unescapeAt(text, 0)
		if got := string(u.b[:u.n]); got != want || u.size != len(text) || u.cut || len(text) > maxNamed {
			t.Errorf("%s: %+v, want %q", text, u, want)
		}
		for n := 1; n < len(text); n++ {
			if u := unescapeAt(text[:n], 0); !u.cut {
				t.Errorf("%s: %+v", text[:n], u)
			}
		}
		if want < " " {
			continue // no value has it
		}
		value := "a3" + want + "REAL-value-0123456789"
		m := newMasker([]secrets.Held{{Name: "KEY", Value: mustValue(t, value)}})
		escaped := fmt.Sprintf("x a3%sREAL-value-0123456789 y", text)
		if got := m.Text(escaped, func(string) {}); strings.Contains(got, "REAL") {
			t.Errorf("%s: %q", text, got)
		}
	}
	for _, text := range []string{"&parameter", "&plus ", "&;", "&Plus;"} {
		if u := unescapeAt(text, 0); u.size != 0 || u.cut {
			t.Errorf("%q: %+v", text, u)
		}
	}
}
