package house

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// sourceSchemas are the kinds that documents may name, with attributes of
// any name that the reference table of the README gives them.
func sourceSchemas(t *testing.T) map[string]policyfile.Schema {
	t.Helper()
	out := map[string]policyfile.Schema{}
	for kind, attrs := range readmeSources(t) {
		var s policyfile.Schema
		for _, a := range attrs {
			typ := policyfile.String
			switch a {
			case "command", "env", "services", "regions", "scopes", "repositories":
				typ = policyfile.StringList
			case "permissions", "params":
				typ = policyfile.StringMap
			case "installation_id":
				typ = policyfile.Int
			case "instance", "exchange", "in_body":
				typ = policyfile.Bool
			case "ttl", "timeout":
				typ = policyfile.Duration
			}
			s.Attrs = append(s.Attrs, policyfile.Attr{Name: a, Type: typ})
		}
		out[kind] = s
	}
	return out
}

// readmeSources is the README's table of secret sources: kind to attributes.
func readmeSources(t *testing.T) map[string][]string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, "README.md"), "| source | attributes |")
	if !ok {
		t.Fatal("the README has no table of secret sources")
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	out := map[string][]string{}
	word := regexp.MustCompile("`([a-z0-9_]+)`")
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		kind := word.FindStringSubmatch(cells[1])
		if kind == nil {
			t.Fatalf("row without a kind: %s", line)
		}
		out[kind[1]] = nil
		for _, a := range word.FindAllStringSubmatch(cells[2], -1) {
			out[kind[1]] = append(out[kind[1]], a[1])
		}
	}
	return out
}

// TestDocumentedSources: the README's table of sources is the code's.
func TestDocumentedSources(t *testing.T) {
	code := read(t, "cmd/sallyport/kinds.go")
	var inCode []string
	for _, m := range regexp.MustCompile(`(?m)^\t\t"([a-z0-9_]+)": \{$`).FindAllStringSubmatch(code, -1) {
		inCode = append(inCode, m[1])
	}
	var inReadme []string
	for kind := range readmeSources(t) {
		inReadme = append(inReadme, kind)
	}
	slices.Sort(inCode)
	slices.Sort(inReadme)
	if !slices.Equal(inCode, inReadme) {
		t.Errorf("README has sources %q, the code %q", inReadme, inCode)
	}
}

// TestDocumentedPolicies: every HCL block of the README that is a policy
// loads and compiles.
func TestDocumentedPolicies(t *testing.T) {
	found := 0
	for i, block := range hclBlocks(read(t, "README.md")) {
		if strings.Contains(block, "the daemon file") {
			continue
		}
		found++
		doc, diags := policyfile.Parse(map[string][]byte{"README.md": []byte(block)}, policyfile.Options{Sources: sourceSchemas(t)})
		if diags.HasErrors() {
			t.Errorf("block %d: %v", i, diags.Err())
			continue
		}
		if _, problems := policy.Compile(*doc, 1); policy.HasErrors(problems) {
			t.Errorf("block %d: %v", i, problems)
		}
	}
	if found == 0 {
		t.Error("the README has no policy")
	}
}

func hclBlocks(markdown string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllStringSubmatch(markdown, -1) {
		out = append(out, m[1])
	}
	return out
}

// TestDocumentedReasons: the README's list of reasons is the code's.
func TestDocumentedReasons(t *testing.T) {
	var inCode []string
	for _, m := range regexp.MustCompile(`Reason\s*= "([a-z_]+)"`).FindAllStringSubmatch(read(t, "policy/reason.go"), -1) {
		inCode = append(inCode, m[1])
	}
	_, rest, _ := strings.Cut(read(t, "README.md"), "| reasons | |")
	table, _, _ := strings.Cut(rest, "\n\n")
	var inReadme []string
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(table, -1) {
		inReadme = append(inReadme, m[1])
	}
	slices.Sort(inCode)
	slices.Sort(inReadme)
	if len(inCode) < 50 || !slices.Equal(inCode, inReadme) {
		t.Errorf("README has reasons\n%q\nthe code\n%q", inReadme, inCode)
	}
}

// TestEveryReasonIsProvoked: each reason is named by a test.
func TestEveryReasonIsProvoked(t *testing.T) {
	files, _ := sources(t)
	var all, own strings.Builder // own: of the package that declares them
	for _, s := range files {
		switch {
		case s.test && s.pkg == "policy":
			own.WriteString(read(t, s.path))
		case s.test && s.pkg != "test/house":
			all.WriteString(read(t, s.path))
		}
	}
	text := all.String()
	for _, m := range regexp.MustCompile(`(\w+)\s+Reason\s*= "([a-z_]+)"`).FindAllStringSubmatch(read(t, "policy/reason.go"), -1) {
		if !strings.Contains(text, `"`+m[2]+`"`) && !regexp.MustCompile(`\bpolicy\.`+m[1]+`\b`).MatchString(text) && !regexp.MustCompile(`\b`+m[1]+`\b`).MatchString(own.String()) {
			t.Errorf("no test provokes %s", m[2])
		}
	}
}
