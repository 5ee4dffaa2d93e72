//go:build linux

package corpus_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"sallyport/test/corpus"
)

// TestEveryCaseHasATest holds that each case of the registry is a test of
// this package, or is said to be elsewhere.
func TestEveryCaseHasATest(t *testing.T) {
	tests := map[string]bool{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`^Test(POL|DNS|TLS|SEC|NET|OPS|AUD|CLI|UDP|WS|H1|H2)([0-9]{2})`)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			if m := number.FindStringSubmatch(fn.Name.Name); m != nil {
				id := m[1] + "-" + m[2]
				if _, ok := corpus.Titles()[id]; !ok {
					t.Errorf("%s is the test of no case", fn.Name.Name)
				}
				tests[id] = true
			}
		}
	}
	for id, title := range corpus.Titles() {
		if _, ok := corpus.Elsewhere()[id]; !tests[id] && !ok {
			t.Errorf("%s has no test: %s", id, title)
		}
	}
	for id := range corpus.Elsewhere() {
		if _, ok := corpus.Titles()[id]; !ok {
			t.Errorf("%s is no case", id)
		}
	}
}
