package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestOutputErrorsAreSeen: no call that writes to standard output stands alone,
// its error unseen. put, and newTable, are what a command prints with.
func TestOutputErrorsAreSeen(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	set, calls := token.NewFileSet(), 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(set, f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			var call *ast.CallExpr
			switch s := n.(type) {
			case *ast.CallExpr:
				if prints(s) {
					calls++
				}
				return true
			case *ast.ExprStmt:
				call, _ = s.X.(*ast.CallExpr)
			case *ast.DeferStmt:
				call = s.Call
			case *ast.GoStmt:
				call = s.Call
			}
			if call != nil && prints(call) {
				t.Errorf("%s: what it prints may be lost without a word; use put", set.Position(call.Pos()))
			}
			return true
		})
	}
	if calls < 20 {
		t.Errorf("only %d calls that print were found", calls)
	}
}

// prints says whether a call writes to standard output.
func prints(call *ast.CallExpr) bool {
	if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "put" {
		return true
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if x, ok := f.X.(*ast.Ident); ok && x.Name == "fmt" && strings.HasPrefix(f.Sel.Name, "Print") {
		return true
	}
	writes := func(name string) bool { return strings.HasPrefix(name, "Write") || name == "ReadFrom" }
	return isStdout(f.X) && writes(f.Sel.Name) || len(call.Args) > 0 && isStdout(call.Args[0]) && f.Sel.Name != "NewEncoder"
}

func isStdout(e ast.Expr) bool {
	f, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && x.Name == "os" && f.Sel.Name == "Stdout"
}
