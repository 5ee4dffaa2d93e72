package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// metricMaker is a function of cmd/sallyport that makes a metric.
type metricMaker struct {
	kind   string // "": its first argument says it
	name   int    // the argument that is the metric's name; its help follows
	labels bool   // labels follow the help
}

func metricMakers() map[string]metricMaker {
	return map[string]metricMaker{
		"counter":    {kind: "counter", labels: true},
		"count":      {kind: "counter"},
		"gauge":      {kind: "gauge"},
		"seconds":    {kind: "histogram"},
		"m.summed":   {kind: "summary"},
		"m.labelled": {name: 1, labels: true},
	}
}

// metricRows are the metrics of the code as rows of the README's table.
func metricRows(t *testing.T) []string {
	t.Helper()
	var rows []string
	made := map[string]int{} // what prometheus has made
	files, fset := sources(t)
	for _, s := range files {
		if s.test || strings.HasPrefix(s.pkg, "test") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				if of, ok := fun.X.(*ast.Ident); ok {
					name = of.Name + "." + fun.Sel.Name
				}
			}
			if strings.HasPrefix(name, "prometheus.New") {
				made[name]++
			}
			maker, ok := metricMakers()[name]
			if !ok || s.path != "cmd/sallyport/metrics.go" {
				return true
			}
			args := call.Args[maker.name:]
			metric, help, kind := stringOf(args[0]), stringOf(args[1]), maker.kind
			if kind == "" {
				kind = strings.ToLower(strings.TrimSuffix(call.Args[0].(*ast.SelectorExpr).Sel.Name, "Value"))
			}
			if metric == "" || help == "" {
				t.Errorf("%s: a metric without a constant name and help", fset.Position(call.Pos()))
				return true
			}
			var labels []string
			if maker.labels {
				for _, a := range args[2:] {
					if l := stringOf(a); l != "" {
						labels = append(labels, "`"+l+"`")
					}
				}
			}
			rows = append(rows, "| `sallyport_"+metric+"` | "+kind+" | "+strings.Join(labels, " ")+" | "+help+" |")
			return true
		})
	}
	for name, n := range made {
		if !slices.Contains([]string{"NewRegistry", "NewCounterVec", "NewHistogram", "NewGaugeFunc", "NewCounterFunc", "NewDesc"}, strings.TrimPrefix(name, "prometheus.")) || n != 1 {
			t.Errorf("%s is called %d times: metrics are made by the functions of cmd/sallyport/metrics.go that this test knows", name, n)
		}
	}
	slices.Sort(rows)
	return rows
}

// stringOf is the constant string that e is, "" if it is none.
func stringOf(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}

// TestDocumentedMetrics: the README's table of metrics is the code's, with
// types, labels and what each says of itself.
func TestDocumentedMetrics(t *testing.T) {
	want := metricRows(t)
	_, rest, found := strings.Cut(read(t, "README.md"), "| metric | type | labels | meaning |\n|---|---|---|---|\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	got := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	if !found || len(want) < 15 || !slices.Equal(got, want) {
		t.Errorf("README has metrics\n%s\nthe code, in order\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, row := range want {
		if !regexp.MustCompile("^\\| `sallyport_[a-z_]+` \\| (counter|gauge|histogram|summary) \\| [^|]*\\| [A-Z][^|]*\\. \\|$").MatchString(row) {
			t.Errorf("metric %s: want a name of its own and a sentence", row)
		}
		if strings.Contains(row, "`host`") {
			t.Errorf("metric %s: a sandbox chooses the names of hosts", row)
		}
	}
}
