package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy/policyfile"
)

// TestDaemonWordsAreKnownInAPolicy: of everything that the daemon file may have
// at its top, and a policy nowhere, a policy says where it belongs.
func TestDaemonWordsAreKnownInAPolicy(t *testing.T) {
	file := reflect.TypeFor[daemonFile]()
	for i := range file.NumField() {
		word, _, _ := strings.Cut(file.Field(i).Tag.Get("hcl"), ",")
		if word == "" || word == "limits" {
			continue // of no attribute; sandboxes have limits too
		}
		path := filepath.Join(t.TempDir(), "p.hcl")
		if err := os.WriteFile(path, []byte(word+" = 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, diags := policyfile.Load([]string{path}, policyfile.Options{})
		if err := diags.Err(); err == nil || !strings.Contains(textOf(diags), "serve --config") {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func textOf(d *policyfile.Diagnostics) string {
	var b strings.Builder
	_ = d.WriteText(&b, false)
	return b.String()
}

// TestDaemonFileIsDocumented: the README's table of the daemon file has every
// attribute that the file may have, and no other.
func TestDaemonFileIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "| block | attribute | value | default |\n|---|---|---|---|\n")
	if !ok {
		t.Fatal("the README has no table of the daemon file")
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	var documented []string
	block := ""
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if b := strings.Trim(cells[1], " `"); b != "" {
			block, _, _ = strings.Cut(b, " ")
			block += "."
		}
		documented = append(documented, block+strings.Trim(cells[2], " `"))
	}
	want := attributesOf(reflect.TypeFor[daemonFile](), "")
	slices.Sort(documented)
	slices.Sort(want)
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("the daemon file (-) and its table in the README (+):\n%s", diff)
	}
}

// attributesOf lists the attributes that a struct is decoded from, with those
// of its blocks.
func attributesOf(s reflect.Type, prefix string) (out []string) {
	for i := range s.NumField() {
		name, kind, _ := strings.Cut(s.Field(i).Tag.Get("hcl"), ",")
		switch {
		case name == "" || kind == "label":
		case kind == "block":
			out = append(out, attributesOf(s.Field(i).Type.Elem(), name+".")...)
		default:
			out = append(out, prefix+name)
		}
	}
	return out
}
