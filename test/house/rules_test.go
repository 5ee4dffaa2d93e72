package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// TestNoInit: what a package does, somebody called.
func TestNoInit(t *testing.T) {
	files, fset := sources(t)
	for _, s := range files {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init function", fset.Position(f.Pos()))
			}
		}
	}
}

// TestNoPackageState: variables of a package are errors, compiled patterns
// and the like, which nobody writes.
func TestNoPackageState(t *testing.T) {
	files, fset := sources(t)
	for _, s := range files {
		if s.test || strings.HasPrefix(s.pkg, "test") {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if !fixed(s, v) && !strings.Contains(comments(g.Doc), "//go:embed") {
					t.Errorf("%s: package variable %s can change", fset.Position(v.Pos()), v.Names[0].Name)
				}
			}
		}
	}
}

func comments(g *ast.CommentGroup) string {
	if g == nil {
		return ""
	}
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(c.Text + "\n")
	}
	return b.String()
}

// fixed says whether a package variable is one that nobody writes: the
// blank one, an error, a pool that holds no state of meaning, a pattern, or
// what the linker sets.
func fixed(s source, v *ast.ValueSpec) bool {
	name := v.Names[0].Name
	if name == "_" || s.pkg == "cmd/sallyport" && name == "release" || s.pkg == "gateway" && name == "buffers" {
		return true
	}
	if len(v.Values) == 0 {
		return false
	}
	for _, value := range v.Values {
		call, ok := value.(*ast.CallExpr)
		if !ok {
			return false
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := fun.X.(*ast.Ident)
		if !ok {
			return false
		}
		switch pkg.Name + "." + fun.Sel.Name {
		case "errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "netip.MustParsePrefix", "netip.MustParseAddr":
		default:
			return false
		}
	}
	return true
}

// TestProgramEndsInCmd: os.Exit, log.Fatal and flags are the command's.
func TestProgramEndsInCmd(t *testing.T) {
	files, fset := sources(t)
	for _, s := range files {
		if s.test || strings.HasPrefix(s.pkg, "cmd/") || strings.HasPrefix(s.pkg, "test") || strings.HasPrefix(s.pkg, "examples") {
			continue
		}
		calls(s, func(pkg, name string, pos token.Pos) {
			if pkg == "os" && name == "Exit" || pkg == "log" && strings.HasPrefix(name, "Fatal") || pkg == "flag" {
				t.Errorf("%s: %s.%s outside cmd", fset.Position(pos), pkg, name)
			}
		})
	}
}

// TestReveal: a secret is opened where it is kept and where it is injected.
func TestReveal(t *testing.T) {
	files, fset := sources(t)
	for _, s := range files {
		if s.test || s.pkg == "secrets" || s.pkg == "gateway/inject" || strings.HasPrefix(s.pkg, "secrets/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Reveal" {
				t.Errorf("%s: Reveal outside gateway/inject and secrets", fset.Position(sel.Pos()))
			}
			return true
		})
	}
}

func calls(s source, f func(pkg, name string, pos token.Pos)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if sel, ok := c.Fun.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok {
					f(id.Name, sel.Sel.Name, c.Pos())
				}
			}
		}
		return true
	})
}

// TestNothingSkipped: a test runs or does not exist.
func TestNothingSkipped(t *testing.T) {
	files, fset := sources(t)
	for _, s := range files {
		if !s.test && !strings.HasPrefix(s.pkg, "test") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				switch sel.Sel.Name {
				case "Skip", "Skipf", "SkipNow":
					if id, ok := sel.X.(*ast.Ident); ok && (id.Name == "t" || id.Name == "b" || id.Name == "f") {
						t.Errorf("%s: a test that may not run", fset.Position(sel.Pos()))
					}
				}
			}
			return true
		})
	}
}

// TestExportedAreDocumented: every exported name of a package has a comment
// that starts with its name.
func TestExportedAreDocumented(t *testing.T) {
	files, fset := sources(t)
	for _, s := range files {
		if s.test || strings.HasPrefix(s.pkg, "test") || strings.HasPrefix(s.pkg, "examples") {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && !strings.HasPrefix(d.Doc.Text(), d.Name.Name) {
					t.Errorf("%s: %s has no comment that starts with its name", fset.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					ts, ok := spec.(*ast.TypeSpec)
					if !ok || !ts.Name.IsExported() {
						continue
					}
					doc := d.Doc.Text() + ts.Doc.Text()
					if !strings.HasPrefix(doc, ts.Name.Name) {
						t.Errorf("%s: type %s has no comment that starts with its name", fset.Position(ts.Pos()), ts.Name.Name)
					}
				}
			}
		}
	}
}

// exportedReceiver says whether a function is part of the package's face: a
// function, or a method of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	e := d.Recv.List[0].Type
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	id, ok := e.(*ast.Ident)
	return ok && id.IsExported()
}

// TestNoMarks: nothing is left for later.
func TestNoMarks(t *testing.T) {
	mark := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	files, fset := sources(t)
	for _, s := range files {
		for _, c := range s.file.Comments {
			if mark.MatchString(c.Text()) {
				t.Errorf("%s: a mark of something unfinished", fset.Position(c.Pos()))
			}
		}
	}
}
