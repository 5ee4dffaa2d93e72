package dns

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDNS01NothingAsksUpstream reads the package's own source: there is no
// code in it that could send a question anywhere. Of the packages that can
// dial it uses only the names listed here, none of which does.
func TestDNS01NothingAsksUpstream(t *testing.T) {
	imports := []string{
		"bufio", "bytes", "context", "encoding/binary", "errors", "fmt", "io", "maps", "math", "net", "net/netip",
		"runtime/debug", "slices", "strconv", "strings", "sync", "time", "unicode/utf8",
		"github.com/hashicorp/go-hclog", "github.com/miekg/dns", "sallyport/policy",
	}
	allowed := map[string][]string{
		"net": {"Addr", "Conn", "ErrClosed", "Listener"},
		"dns": {"Fqdn", "MaxMsgSize", "MinMsgSize", "PackDomainName", "TypeToString", "ClassINET", "EDNS0EDE"},
	}
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if !slices.Contains(imports, path) || spec.Name != nil {
				t.Errorf("%s imports %s, which is not in the list", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			list, guarded := allowed[identName(pkg, ok)]
			if !guarded {
				return true
			}
			seen++
			constant := pkg.Name == "dns" && (strings.HasPrefix(sel.Sel.Name, "Type") || strings.HasPrefix(sel.Sel.Name, "Rcode"))
			if !constant && !slices.Contains(list, sel.Sel.Name) {
				t.Errorf("%s uses %s.%s, which is not in the list", name, pkg.Name, sel.Sel.Name)
			}
			return true
		})
	}
	if seen < 10 {
		t.Fatalf("only %d uses looked at: the test reads the wrong files", seen)
	}
}

func identName(id *ast.Ident, ok bool) string {
	if !ok {
		return ""
	}
	return id.Name
}
