package policyfile

import (
	"strings"
	"testing"
	"time"

	"sallyport/policy"
)

// TestEvaluate holds what a policy can compute.
func TestEvaluate(t *testing.T) {
	files := map[string][]byte{
		"a.hcl": []byte(`
locals {
  hosts  = concat(local.models, ["api.${var.domain}"])
  models = sort([for m in ["openai", "anthropic"] : "api.${lower(m)}.test"])
  teams  = { web = ["web.test"], data = ["data.test", "lake.test"] }
  all    = distinct(flatten(values(local.teams)))
  names  = join("-", keys(local.teams))
  last   = length(local.teams) == 2 ? "2026-12-31" : "2000-01-01"
}
variable "domain" { default = "corp.test" }
variable "ports" { default = [443] }
`),
		"b.hcl": []byte(`
sandbox "ci" {
  dynamic "allow" {
    for_each = local.hosts
    labels   = [allow.value]
    content {
      ports   = var.ports
      expires = local.last
    }
  }
  allow "all.test" { paths = [for t in local.all : "/${trimsuffix(t, ".test")}/**"] }
}
dynamic "sandbox" {
  for_each = local.teams
  iterator = team
  labels   = ["team-${team.key}"]
  content {
    labels = { members = local.names, first = lookup({ a = "x" }, "a", "y") }
    dynamic "allow" {
      for_each = team.value
      labels   = [allow.value]
      content { paths = ["/${team.key}/${allow.key}"] }
    }
  }
}
`),
	}
	o := testOptions()
	o.Vars = map[string]string{"ports": "[443, 8443]"}
	doc, diags := Parse(files, o)
	if diags.HasErrors() {
		t.Fatal(shown(t, diags))
	}
	if len(doc.Sandboxes) != 3 {
		t.Fatalf("%d sandboxes", len(doc.Sandboxes))
	}
	var got []string
	for _, sb := range doc.Sandboxes {
		got = append(got, sb.Name+" "+sb.Labels["members"]+sb.Labels["first"])
		for _, r := range sb.Rules {
			day := ""
			if !r.Expires.IsZero() {
				day = r.Expires.Format(time.DateOnly)
			}
			got = append(got, strings.TrimSpace(strings.Join([]string{r.Host, strings.Join(r.Paths, " "), day}, " ")))
		}
	}
	want := []string{"ci ", "api.anthropic.test  2026-12-31", "api.openai.test  2026-12-31", "api.corp.test  2026-12-31", "all.test /data/** /lake/** /web/**",
		"team-data data-webx", "data.test /data/0", "lake.test /data/1", "team-web data-webx", "web.test /web/0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r := doc.Sandboxes[0].Rules[0]; len(r.Ports) != 2 || r.Pos != (policy.Pos{File: "b.hcl", Line: 3, Column: 11}) {
		t.Errorf("ports %v at %v", r.Ports, r.Pos)
	}
}

// TestEvaluateFaults holds what a policy cannot compute, and that it says so
// at once, however much it asks for.
func TestEvaluateFaults(t *testing.T) {
	double := "locals {\n  l0 = [" + strings.Repeat(`"x",`, 100) + "]\n"
	for i := range 30 {
		double += "  l" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + " = 1\n"
	}
	double += "  l1 = concat(local.l0, local.l0, local.l0, local.l0, local.l0, local.l0, local.l0, local.l0, local.l0, local.l0)\n" +
		"  l2 = concat(local.l1, local.l1, local.l1, local.l1, local.l1, local.l1, local.l1, local.l1, local.l1, local.l1, local.l1)\n}\n"
	text := "locals {\n  s0 = \"" + strings.Repeat("x", 4000) + "\"\n  s1 = \"${local.s0}${local.s0}${local.s0}${local.s0}${local.s0}\"\n}\n"
	for name, tt := range map[string]struct{ text, want string }{
		"file":               {`locals { x = file("/etc/passwd") }`, "call to unknown function"},
		"environment":        {`locals { x = env("HOME") }`, "call to unknown function"},
		"time":               {`locals { x = timestamp() }`, "call to unknown function"},
		"undeclared local":   {"locals { day = \"2026-12-31\" }\nsandbox \"s\" {\n  allow \"a.test\" { expires = local.dya }\n}", "did you mean local.day?"},
		"undeclared var":     {"sandbox \"s\" {\n  allow \"a.test\" { expires = var.day }\n}", `variable "day" is not declared`},
		"no value":           {`variable "x" {}`, "give one with --var x=VALUE"},
		"cycle":              {"locals {\n  a = local.b\n  b = local.a\n}", "refers to itself"},
		"declared twice":     {"locals { a = 1 }\nlocals { a = 2 }", "is declared twice"},
		"wrong type":         {"locals { a = 1 }\nsandbox \"s\" {\n  allow \"a.test\" { methods = local.a }\n}", "methods must be a list of strings"},
		"nested for":         {`locals { a = [for x in [1] : [for y in [1] : y]] }`, "a for expression inside of another"},
		"growing list":       {double, "more than 10000 elements"},
		"growing text":       {text, "longer than 16000 bytes"},
		"growing replace":    {`locals { a = replace(join("", split(",", "` + strings.Repeat("x,", 3000) + `")), "x", "yyyyyyyyyyyyyyyyyyyyyy") }`, "too long"},
		"huge number":        {`locals { a = "${1e999999}" }`, "a number is too large"},
		"squared number":     {"locals {\n  a = 1e18\n  b = local.a * local.a\n}", "a number is too large"},
		"for_each of a word": {"dynamic \"sandbox\" {\n  for_each = \"x\"\n  labels = [\"x\"]\n  content {}\n}", "must be a list, a set or a map"},
		"no content":         {"dynamic \"sandbox\" {\n  for_each = [\"x\"]\n}", "holds one content block"},
		"no for_each":        {"dynamic \"sandbox\" {\n  content {}\n}", "needs for_each"},
		"labels of numbers":  {"dynamic \"sandbox\" {\n  for_each = [1]\n  labels = [1]\n  content {}\n}", "labels must be a list of strings"},
		"the same name":      {"dynamic \"sandbox\" {\n  for_each = [1, 2]\n  labels = [\"x\"]\n  content {}\n}", "declared twice"},
		"iterator local":     {"dynamic \"sandbox\" {\n  for_each = [1]\n  iterator = local\n  content {}\n}", "iterator must be a name"},
		"in a default":       {"locals { a = 1 }\nvariable \"x\" { default = local.a }", "default must be written out"},
		"an unknown kind":    {"sandbox \"s\" {\n  dynamic \"alow\" {\n    for_each = [1]\n    labels = [\"a.test\"]\n    content {}\n  }\n}", `did you mean "allow"`},
		"null":               {"locals { a = null }\nsandbox \"s\" {\n  allow \"a.test\" { methods = local.a }\n}", "methods must be a list of strings"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			doc, diags := parseOne(t, tt.text)
			if got := shown(t, diags); doc != nil || !strings.Contains(got, tt.want) {
				t.Errorf("got %s\nwant %q", got, tt.want)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestExpansionLimit: blocks within blocks cannot make more than the limit.
func TestExpansionLimit(t *testing.T) {
	text := `
locals { n = [` + strings.Repeat("1,", 900) + `] }
sandbox "s" {
  dynamic "allow" {
    for_each = local.n
    labels   = ["a.test"]
    content {
      dynamic "limits" {
        for_each = local.n
        content { connections = 1 }
      }
    }
  }
}
`
	began := time.Now()
	doc, diags := parseOne(t, text)
	if got := shown(t, diags); doc != nil || !strings.Contains(got, "dynamic blocks make more than 50000 blocks") {
		t.Errorf("got %.2000s", got)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestVariables: what is given for a variable must be declared, and of the
// kind of its default.
func TestVariables(t *testing.T) {
	const text = "variable \"n\" { default = 5 }\nsandbox \"s\" {\n  limits { connections = var.n }\n}\n"
	for name, tt := range map[string]struct {
		vars map[string]string
		want string
	}{
		"default":    {nil, ""},
		"given":      {map[string]string{"n": "7"}, ""},
		"not a kind": {map[string]string{"n": "x y"}, "what was given is no value"},
		"computed":   {map[string]string{"n": "file(\"x\")"}, "what was given is no value"},
		"unknown":    {map[string]string{"m": "7"}, `no variable is called "m"`},
		"bad":        {map[string]string{"n": `["a"]`}, "connections must be a whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			o.Vars = tt.vars
			doc, diags := Parse(map[string][]byte{"a.hcl": []byte(text)}, o)
			if got := shown(t, diags); !strings.Contains(got, tt.want) || (doc == nil) != (tt.want != "") {
				t.Errorf("got %s, want %q", got, tt.want)
			}
			if doc != nil && tt.vars != nil && doc.Sandboxes[0].Limits.Connections != 7 {
				t.Errorf("limits %+v", doc.Sandboxes[0].Limits)
			}
		})
	}
}
