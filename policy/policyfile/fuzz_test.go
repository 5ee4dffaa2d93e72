package policyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/policy"
)

// FuzzParse feeds the parser anything: it never panics, what it does not
// accept it places, and what it accepts compiles or has problems with places.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/diagnostics/*.hcl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/whole.hcl") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(Starter())
	for _, s := range []string{"sandbox \"a\" {\n", "}\n", "\"${", "<<X\n", "a = 1e999999999", "sandbox \"a\" {\n  allow \"a.example\" {\n    ports = 1e999999999\n  }\n}\n", "sandbox \"a\" {\n  ipv6 = -1\n}\n", "org{}\x00",
		"sandbox \"\\ud800\" {}\n", "sandbox a b {}", "group \"g\" {\n  allow \"%{if x}\" {}\n}\n", "org {\n  allow \"*.com\" {}\n}\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := parse([]source{{name: "f.hcl", base: "f.hcl", data: data}}, &Diagnostics{}, testOptions())
		failed := p.diags.HasErrors()
		set, diags := p.compile(1)
		if failed && set != nil {
			t.Fatal("a policy with errors was compiled")
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, x := range diags.List() {
			if x.Summary == "" || strings.ContainsAny(x.Summary, "\n") {
				t.Errorf("summary %q", x.Summary)
			}
			if x.Pos.File != "f.hcl" || x.Pos.Line < 0 || x.Pos.Line > lines {
				t.Errorf("%q is at %+v, of %d lines", x.Summary, x.Pos, lines)
			}
		}
		var b, j strings.Builder
		if err := diags.WriteText(&b, true); err != nil {
			t.Fatal(err)
		}
		if err := diags.WriteJSON(&j); err != nil {
			t.Fatal(err)
		}
		if set == nil && b.Len() == 0 {
			t.Error("refused without a reason")
		}
	})
}

// TestDeepNesting holds that text made to exhaust the parser's stack is
// refused before it is parsed, and ordinary text with many brackets is not.
func TestDeepNesting(t *testing.T) {
	const n = 1 << 16
	for name, text := range map[string]string{
		"lists":        "a = " + strings.Repeat("[", n),
		"blocks":       strings.Repeat("a {\n", n/4),
		"parentheses":  "a = " + strings.Repeat("(", n),
		"not":          "a = " + strings.Repeat("!", n),
		"minus":        "a = " + strings.Repeat("- ", n),
		"conditionals": "a = " + strings.Repeat("1?1:", n/2),
		"templates":    "a = " + strings.Repeat(`"${`, n/2),
		"directives":   `a = "` + strings.Repeat("%{if a}", n/4),
	} {
		t.Run(name, func(t *testing.T) {
			doc, diags := parseOne(t, text)
			if doc != nil || !strings.Contains(shown(t, diags), "nested too deeply") {
				t.Errorf("Parse gave:\n%.300s", shown(t, diags))
			}
		})
	}
	t.Run("text and comments do not count", func(t *testing.T) {
		doc, diags := parseOne(t, "# "+strings.Repeat("[({? ", 5000)+"\nsandbox \"a\" {\n  allow \"a.example\" {\n    reason = \""+
			strings.Repeat("[(?!", 200)+"\"\n  }\n}\n")
		if doc == nil {
			t.Errorf("Parse gave:\n%.300s", shown(t, diags))
		}
	})
}

// TestReasonsAreComplete holds the list of reasons against the policy package's.
func TestReasonsAreComplete(t *testing.T) {
	data, err := os.ReadFile("../reason.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, r := range reasons() {
		known[r] = true
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, " Reason = "); ok {
			n++
			if value = strings.Trim(strings.TrimSpace(value), `"`); !known[value] {
				t.Errorf("reason %s (%q) is missing", strings.TrimSpace(name), value)
			}
		}
	}
	if n != len(known) {
		t.Errorf("%d reasons are declared, %d known", n, len(known))
	}
}

// TestProblemsOfCompile shows a problem of the compiler like one of the
// decoder: with the line it is on and the lines it is compared with.
func TestProblemsOfCompile(t *testing.T) {
	const text = "org {\n  allow \"api.example.com\" { access = \"read\" }\n}\nsandbox \"ci\" {\n  allow \"api.example.com\" {\n    inject = [\"API_KEY\"]\n  }\n}\n"
	_, diags := parseOne(t, text)
	diags.AddProblems([]policy.Problem{
		{Pos: policy.Pos{File: "ci.hcl", Line: 5, Column: 3}, Related: []policy.Pos{{File: "ci.hcl", Line: 2, Column: 3}}, Summary: "not covered by the org", Detail: "Because.", Hint: "narrow it"},
		{Pos: policy.Pos{File: "ci.hcl", Line: 6, Column: 15}, Summary: "secret \"API_KEY\" is not declared", Severity: policy.Warning},
		{Summary: "no place"},
		{Pos: policy.Pos{File: "gone.hcl", Line: 3, Column: 9}, Summary: "no text"},
	})
	golden(t, "testdata/problems.txt", shown(t, diags), *updateGolden)
	if err := diags.Err(); err == nil || err.Error() != "no place (and 2 more)" {
		t.Errorf("Err() = %v", err)
	}
	if diags.Len() != 4 || !diags.HasErrors() {
		t.Errorf("%d diagnostics", diags.Len())
	}
}

// TestOnlySnippetLines holds that a report repeats no line of a file but the
// ones it is about, however long a value is, and never a value that somebody
// pasted where a secret's source belongs.
func TestOnlySnippetLines(t *testing.T) {
	_, diags := parseOne(t, `secret "KEY" {
  hosts = ["a.example"]
  value = <<X
HIDDEN-1
X
  ttl = <<X
HIDDEN-2
X
  source "env" {
    name   = "KEY"
    secret = "HIDDEN-3"
  }
}
sandbox "ci" {
  mode = <<X
HIDDEN-4
X
  use = [
    "HIDDEN-5", 7
  ]
  labels = [
    "HIDDEN-6"
  ]
  allow "a.example" {
    methods = "x`+strings.Repeat("y", 500)+`HIDDEN-7"
  }
}
`)
	var j strings.Builder
	if err := diags.WriteJSON(&j); err != nil {
		t.Fatal(err)
	}
	for kind, text := range map[string]string{"text": shown(t, diags), "JSON": j.String()} {
		for _, hidden := range []string{"HIDDEN-1", "HIDDEN-2", "HIDDEN-3", "HIDDEN-4", "HIDDEN-6", "HIDDEN-7"} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s shows %s:\n%s", kind, hidden, text)
			}
		}
		for line := range strings.Lines(shown(t, diags)) {
			if len(line) > 250 {
				t.Errorf("line of %d bytes: %s", len(line), line)
			}
		}
	}
}
