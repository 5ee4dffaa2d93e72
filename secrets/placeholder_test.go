package secrets

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestName(t *testing.T) {
	grammar := regexp.MustCompile(`^[A-Z][A-Z0-9_]{2,63}$`)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.StringMatching(`[A-Z0-9_a$-]{0,5}`), rapid.StringMatching(`[A-Z][A-Z0-9_]{0,70}`)).Draw(t, "s")
		if Name(s) != grammar.MatchString(s) {
			t.Fatalf("Name(%q) = %v", s, Name(s))
		}
	})
}

func TestPlaceholderShapes(t *testing.T) {
	key := []byte("key")
	for template, want := range map[string]string{
		"":                       `^\$GH_TOKEN$`,
		"$GH_TOKEN":              `^\$GH_TOKEN$`,
		"ghp_{rand:36}":          `^ghp_[A-Za-z0-9]{36}$`,
		"sk-ant-{rand:90}-AA":    `^sk-ant-[A-Za-z0-9]{90}-AA$`,
		"xoxb-{rand:16}":         `^xoxb-[A-Za-z0-9]{16}$`,
		"managed-by-the-gateway": `^managed-by-the-gateway$`,
	} {
		got := NewPlaceholder(template, "GH_TOKEN", key, "s1")
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q gave %q", template, got)
		}
		if got != NewPlaceholder(template, "GH_TOKEN", key, "s1") {
			t.Errorf("%q: not the same twice", template)
		}
		if !strings.Contains(template, "{rand") {
			continue
		}
		for what, other := range map[string]string{
			"sandbox": NewPlaceholder(template, "GH_TOKEN", key, "s2"),
			"secret":  NewPlaceholder(template, "GH_TOKE2", key, "s1"),
			"key":     NewPlaceholder(template, "GH_TOKEN", []byte("yek"), "s1"),
		} {
			if other == got {
				t.Errorf("%q: the same for another %s", template, what)
			}
		}
	}
}

func TestParseTemplateRefuses(t *testing.T) {
	for template, want := range map[string]string{
		"ghp_{rand:8}": "at least 16", "{rand:36}": "before {rand:N}", "a_{rand:36}": "before {rand:N}",
		"ghp_{rand:x}": "number", "ghp_{rand:36": "number", "ghp_{rand:}": "number", "ghp_{rand:-1}": "at least 16",
		"ghp_{rand:20}{rand:20}": "only one", "short": "at least 8", "with space here": "' '", "$lower_case": "'$'",
		"per%24cent": "'%'", "line\nbreak{rand:20}": `'\n'`, "sk-{rand:999999999999999999999}": "number", "sk-{rand:300}": "longer",
		strings.Repeat("x", 300): "longer", "naïve_{rand:20}": "not allowed",
	} {
		if got, err := ParseTemplate(template); err == nil || !strings.Contains(err.Error(), want) || !got.IsZero() {
			t.Errorf("ParseTemplate(%q) = %+v, %v; want %q", template, got, err, want)
		}
		if got := NewPlaceholder(template, "NAME", nil, "s"); got != "$NAME" {
			t.Errorf("NewPlaceholder(%q) = %q", template, got)
		}
	}
}

func TestGenuine(t *testing.T) {
	key := []byte("key")
	tmpl, err := ParseTemplate("ghp_{rand:36}x")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := tmpl.Placeholder(rapid.String().Draw(t, "name"), key, rapid.String().Draw(t, "sandbox"))
		if !tmpl.Genuine(p, key) || tmpl.Genuine(p, []byte("other")) {
			t.Fatalf("%q: genuine %v", p, tmpl.Genuine(p, key))
		}
		b := []byte(p)
		i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if tmpl.Genuine(string(b), key) {
			t.Fatalf("%q is genuine", b)
		}
	})
	if tmpl.Genuine("ghp_"+strings.Repeat("a", 36)+"x", key) || tmpl.Genuine("", key) {
		t.Error("a made-up placeholder is genuine")
	}
}

func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{"", "$NAME", "ghp_{rand:36}", "a{rand:", "{rand:1}", "sk-{rand:20}-{rand:20}", "x{rand:+20}", "abc{rand:020}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tmpl, err := ParseTemplate(s)
		if err != nil {
			return
		}
		p := tmpl.Placeholder("NAME", nil, "s")
		if p == "" || len(p) > MaxPlaceholder || strings.ContainsAny(p, "\r\n\x00 %\"") {
			t.Fatalf("%q gave %q", s, p)
		}
		if tmpl.Rand > 0 && !tmpl.Genuine(p, nil) {
			t.Fatalf("%q gave %q, which is not genuine", s, p)
		}
	})
}
