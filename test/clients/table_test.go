//go:build linux

package clients_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// row is a row of the README's table of clients.
type row struct{ client, unmodified, reads, refusal, tried string }

// table reads the README's table of clients.
func table(t *testing.T) []row {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	must(t, err)
	_, rest, ok := strings.Cut(string(b), "| client | unmodified |")
	if !ok {
		t.Fatal("the README has no table of clients")
	}
	text, _, _ := strings.Cut(rest, "\n\n")
	var out []row
	for _, line := range strings.Split(text, "\n")[2:] {
		cells := strings.Split(line, " | ")
		if len(cells) != 5 {
			t.Fatalf("a row of %d cells: %s", len(cells), line)
		}
		out = append(out, row{strings.TrimPrefix(cells[0], "| "), cells[1], cells[2], cells[3], strings.TrimSuffix(cells[4], " |")})
	}
	return out
}

// TestClientsTable: the README says of a client that it was tried if, and only
// if, it is tried here or by the test that it names, and what a refusal reads
// like there.
func TestClientsTable(t *testing.T) {
	listed := map[string]client{}
	for _, c := range clients() {
		if _, twice := listed[c.name]; twice {
			t.Errorf("%s is tried twice", c.name)
		}
		listed[c.name] = c
	}
	for _, r := range table(t) {
		c, here := listed[r.client]
		delete(listed, r.client)
		switch test := regexp.MustCompile("^`(Test[A-Za-z0-9]+)`$").FindStringSubmatch(r.tried); {
		case here && (r.tried != "yes" || r.unmodified != "yes"):
			t.Errorf("%s is tried as it is; the README says %q and %q", r.client, r.unmodified, r.tried)
		case !here && test == nil && r.tried != "no":
			t.Errorf("%s is not tried; the README says %q", r.client, r.tried)
		case test != nil && !exists(t, test[1]):
			t.Errorf("%s: there is no %s", r.client, test[1])
		}
		if shown := r.refusal == "reason"; here && shown != strings.Contains(c.refusal, "host_not_allowed") {
			t.Errorf("%s says %q of a refusal; the README says %q", r.client, c.refusal, r.refusal)
		}
	}
	for name := range listed {
		t.Errorf("%s is tried, and not in the README", name)
	}
}

// exists says whether a test beside these has that name.
func exists(t *testing.T, name string) bool {
	t.Helper()
	for _, dir := range []string{"../e2e", "../corpus"} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			b, err := os.ReadFile(dir + "/" + e.Name())
			must(t, err)
			if strings.Contains(string(b), "\nfunc "+name+"(") {
				return true
			}
		}
	}
	return false
}
