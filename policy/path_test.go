package policy

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNormalPath(t *testing.T) {
	for _, tt := range []struct {
		in, want string // want "": ambiguous
	}{
		{"/", "/"},
		{"", "/"},
		{"*", "*"},
		{"/a/b", "/a/b"},
		{"/a/b/", "/a/b"},
		{"/a%20b%C3%A9", "/a%20b%C3%A9"},
		{"/aé", "/a%C3%A9"},
		{"/%7Euser", "/~user"},
		{"/%61dmin", "/admin"},
		{"/100%25", "/100%25"},
		{"/a%2541", ""},
		{"/a%252e", ""},
		{"/a%25%32%65", ""},
		{"/%%32%65", ""},
		{"/.", ""},
		{"/a/./b", ""},
		{"/a/../b", ""},
		{"/a/..", ""},
		{"/a/%2e%2E/b", ""},
		{"/a/.%2e/b", ""},
		{"/a%2eb", ""},
		{"/a/..;x=1/b", ""},
		{"/a/..%3bx/b", ""},
		{"/a/;x/b", ""},
		{"/a/...", "/a/..."},
		{"/.well-known/x", "/.well-known/x"},
		{"/a..b/c.", "/a..b/c."},
		{"/a;v=1/b", "/a;v=1/b"},
		{"//", ""},
		{"//a", ""},
		{"/a//b", ""},
		{"/a//", ""},
		{`/a\b`, ""},
		{"/a%5cb", ""},
		{"/a%5C..%5Cb", ""},
		{"/a%2F..%2Fb", ""},
		{"/a%2F%2Fb", ""},
		{"/%2Fa", ""},
		{"/a%2f", ""},
		{"/a%00b", ""},
		{"/a\x00b", ""},
		{"/a%0d%0ab", ""},
		{"/a\tb", ""},
		{"/a%7fb", ""},
		{"/a b", ""},
		{"/a#b", ""},
		{"/a?b", ""},
		{"/a%3Fb", "/a%3Fb"},
		{"/x%zz", ""},
		{"/x%", ""},
		{"/x%4", ""},
		{"/x%u002e", ""},
		{"/x%c0%af", ""},
		{"/x%c0%ae%c0%ae", ""},
		{"/x%e0%80%af", ""},
		{"/x%ff", ""},
		{"/x%C3", ""},
		{"/x\xc3", ""},
		{"a", ""},
		{"http://good.test/", ""},
	} {
		p, ambiguous := NormalPath(tt.in)
		if ambiguous != (tt.want == "") {
			t.Errorf("NormalPath(%q): ambiguous %v", tt.in, ambiguous)
		}
		if !ambiguous && p.String() != tt.want {
			t.Errorf("NormalPath(%q) = %q, want %q", tt.in, p, tt.want)
		}
		if ambiguous && p != (Path{}) {
			t.Errorf("NormalPath(%q) is ambiguous and yet %+v", tt.in, p)
		}
	}
	p, ambiguous := NormalPath("/@scope%2fname")
	if !ambiguous || !p.EncodedSlash() || p.String() != "/@scope%2Fname" {
		t.Errorf("an encoded slash: %+v, ambiguous %v", p, ambiguous)
	}
}

// TestH123PathIsLeftAlone holds that deciding changes no byte of a request:
// a decision carries no path, and the normal form is of a copy.
func TestH123PathIsLeftAlone(t *testing.T) {
	s := mustCompile(t, sandboxDoc(allowRule("open.test"), allowRule("npm.test", paths("/*", "/a/*"), encodedSlash)))
	for _, raw := range []string{"/@scope%2fname", "/a%2Fb", "/a%20b%C3%A9", "/x%zz", "/a//b", "/a/./b", "/%7Euser"} {
		sent := strings.Clone(raw)
		wantReason(t, s, get("open.test", sent), RuleAllow)
		s.Decide(get("npm.test", sent))
		if sent != raw {
			t.Errorf("%q became %q", raw, sent)
		}
	}
	wantReason(t, s, get("npm.test", "/@scope%2fname"), RuleAllow)
	wantReason(t, s, get("npm.test", "/a%20b%C3%A9"), RuleAllow)
	wantReason(t, s, get("npm.test", "/x%zz"), AmbiguousPath)
	wantReason(t, s, get("npm.test", "/a//b"), AmbiguousPath)
	wantReason(t, s, get("npm.test", "/a/./b"), AmbiguousPath)
}

func TestPathGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, path string
		want          bool
	}{
		{"/", "/", true},
		{"/", "/a", false},
		{"/", "*", false},
		{"/**", "/", true},
		{"/**", "/a/b", true},
		{"/**", "*", false},
		{"/*", "/", false},
		{"/*", "/a", true},
		{"/*", "/a/", true},
		{"/*", "/a/b", false},
		{"/a", "/a/", true},
		{"/a/", "/a", true},
		{"/a", "/A", false},
		{"/a", "/ab", false},
		{"/a/**", "/a", true},
		{"/a/**", "/a/b/c", true},
		{"/a/**", "/ab", false},
		{"/a/*/c", "/a/b/c", true},
		{"/a/*/c", "/a/c", false},
		{"/a/*/**", "/a", false},
		{"/a/*/**", "/a/b", true},
		{"/admin", "/%61dmin", true},
		{"/a%20b", "/a%20b", true},
		{"/é", "/%C3%A9", true},
		{"/%2A", "/a", false},
		{"/%2A", "/*", true},
	} {
		g, err := parsePathGlob(tt.pattern, false)
		if err != nil {
			t.Fatal(err)
		}
		p, ambiguous := NormalPath(tt.path)
		if ambiguous || g.match(p) != tt.want {
			t.Errorf("%q matches %q: %v (ambiguous %v)", tt.pattern, tt.path, !tt.want, ambiguous)
		}
	}
	for pattern, says := range map[string]string{
		"":         "does not begin",
		"a":        "does not begin",
		"*":        "does not begin",
		"/**/a":    "stands last",
		"/a*":      "star inside",
		"/a b":     "more than one way",
		"/a**":     "star inside",
		"/a/../b":  "more than one way",
		"/a//b":    "more than one way",
		"/a?b=c":   "query",
		"/a%2Fb":   "encoded_slash",
		"/a%252Fb": "more than one way",
	} {
		if _, err := parsePathGlob(pattern, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("pattern %q: %v, want %q", pattern, err, says)
		}
		wantProblem(t, sandboxDoc(allowRule("good.test", paths(pattern))), says)
	}
	if _, err := parsePathGlob("/a%2Fb", true); err != nil {
		t.Errorf("with encoded_slash: %v", err)
	}
}

func globGen() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		segs := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 0, 3).Draw(t, "segs")
		if rapid.Bool().Draw(t, "deep") {
			segs = append(segs, "**")
		}
		return "/" + strings.Join(segs, "/")
	})
}

func TestPathGlobCoversIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, err := parsePathGlob(globGen().Draw(t, "g"), false)
		o, err2 := parsePathGlob(globGen().Draw(t, "o"), false)
		segs := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 4).Draw(t, "path")
		p, ambiguous := NormalPath("/" + strings.Join(segs, "/"))
		if err != nil || err2 != nil || ambiguous {
			t.Fatal(err, err2, ambiguous)
		}
		if g.covers(&o) && o.match(p) && !g.match(p) {
			t.Fatalf("%q covers %q but not its %q", g.String(), o.String(), p)
		}
		if !g.covers(&g) {
			t.Fatalf("%q does not cover itself", g.String())
		}
	})
}

func FuzzNormalPath(f *testing.F) {
	for _, s := range []string{
		"/", "*", "/a/b", "/a/../b", "/a/%2e%2e/b", "/a%2Fb", "/a%252Fb", "/a;x/b", "/..;/a", "//", "/a//", "/%C3%A9",
		"/x%zz", "/%25%32%65", "/a%5cb", "/...", "/a/", "/%3B/..", "/a%2F..", "/a;%2F..", "/pub/%2e", "/a;b%2Fc;d",
	} {
		f.Add(s, "/a/**")
		f.Add(s, "/*")
	}
	f.Fuzz(func(t *testing.T, raw, pattern string) {
		p, ambiguous := NormalPath(raw)
		if ambiguous && !p.slash || p.asterisk {
			return
		}
		again, ambiguousAgain := NormalPath(p.String())
		if again.String() != p.String() || ambiguousAgain != ambiguous {
			t.Fatalf("NormalPath(%q) = %q, whose own is %q (%v)", raw, p, again, ambiguousAgain)
		}
		g, err := parsePathGlob(pattern, true)
		if err != nil || !g.match(p) {
			return
		}
		if !g.matchAnyReading(p) {
			t.Fatalf("%q matches %q, but not in any reading", pattern, raw)
		}
		if ambiguous {
			return
		}
		// What an origin makes of it by itself lies in the pattern as well.
		decoded, err := url.PathUnescape(raw)
		if err != nil {
			t.Fatalf("%q is not ambiguous and does not unescape: %v", raw, err)
		}
		resolved := path.Clean("/" + decoded)
		n, ambiguous := NormalPath((&url.URL{Path: resolved}).EscapedPath())
		if ambiguous || !g.match(n) {
			t.Fatalf("%q is in %q, but an origin resolves it to %q (ambiguous %v)", raw, pattern, resolved, ambiguous)
		}
	})
}
