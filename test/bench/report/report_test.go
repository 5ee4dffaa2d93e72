package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// someSamples: two rounds of which the second is three times as slow for all.
func someSamples() Samples {
	var out Samples
	for round, slow := range []float64{1, 3} {
		for peer, cpu := range map[string]float64{"splice": 10, "nginx": 20, "goproxy": 40, "sallyport-netns": 44, "sallyport-interface": 41, "direct": 0} {
			v := map[Metric]float64{Rate: 1000 / slow, P50: (cpu + 100) * slow, Errors: 0, Others: .5, Loads: 2}
			if cpu > 0 {
				v[CPU] = cpu * slow
			}
			out = append(out, Sample{Workload: "W1", Peer: peer, Round: round, Values: v})
		}
	}
	slices.SortFunc(out, func(a, b Sample) int { return strings.Compare(a.Peer, b.Peer) })
	return out
}

func TestVerdicts(t *testing.T) {
	targets := []Target{
		{Workload: "W1", Metric: CPU, To: "goproxy", Limit: 1.05, Must: true},
		{Workload: "W1", Metric: CPU, To: "nginx", Limit: 2.2},
		{Workload: "W1", Metric: Rate, To: "splice", Limit: 1, AtLeast: true, Must: true},
		{Workload: "W1", Metric: CPU, To: "goproxy", Limit: 1.05, Must: true, Peer: "sallyport-interface"},
		{Workload: "W1", Metric: P50, To: "goproxy", Limit: 1.1, Added: "direct"},
		{Workload: "W1", Metric: CPU, To: "squid", Limit: 1, Must: true}, // was not measured
		{Workload: "W2", Metric: CPU, To: "nginx", Limit: 1, Must: true},
	}
	var b bytes.Buffer
	if missed := someSamples().Verdicts(&b, targets); missed != 1 {
		t.Errorf("%d promises are missed, want 1", missed)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, want := range []string{
		"workload", "---",
		"must | CPU µs ≤ 1.05 × goproxy | interface 1.02, netns 1.10 | **no**",
		"aim | CPU µs ≤ 2.20 × nginx | interface 2.05, netns 2.20 | yes",
		"must | per s ≥ 1 × splice | interface 1, netns 1 | yes",
		"must | CPU µs ≤ 1.05 × goproxy | interface 1.02 | yes",
		"aim | added p50 µs ≤ 1.10 × goproxy | interface 1.02, netns 1.10 | yes",
	} {
		if i >= len(lines) || !strings.Contains(strings.Join(strings.Fields(lines[i]), " "), want) {
			t.Errorf("line %d is not %q:\n%s", i, want, b.String())
		}
	}
	if len(lines) != 7 {
		t.Errorf("%d lines:\n%s", len(lines), b.String())
	}
}

// TestTargets: every target can be told apart from its table, and each of
// those that are promised has a limit.
func TestTargets(t *testing.T) {
	seen := map[string]bool{}
	for _, x := range Targets() {
		key := x.Workload + x.Peer + x.String()
		if seen[key] || x.Limit <= 0 {
			t.Errorf("%s %s", x.Workload, x)
		}
		seen[key] = true
	}
}

func TestBaseline(t *testing.T) {
	s := someSamples()
	now := s.Baseline()
	if got := now["W1"]["sallyport-netns/nginx"]; got != 2.2 {
		t.Fatalf("ratio to nginx: %v", got)
	}
	path := filepath.Join(t.TempDir(), "baseline.json")
	if err := now.Write(path); err != nil {
		t.Fatal(err)
	}
	was, err := ReadBaseline(path)
	if err != nil {
		t.Fatal(err)
	}
	if lines, worse := was.Compare(now, .1); len(worse) != 0 || len(lines) != 2 {
		t.Errorf("the same is worse: %q %q", lines, worse)
	}
	for name, c := range map[string]struct {
		factor float64
		worse  bool
		word   string
	}{
		"eleven percent dearer": {1.11, true, "WORSE by more than 10 %"},
		"nine percent dearer":   {1.09, false, "as it was"},
		"much cheaper":          {0.5, false, "better"},
	} {
		then := Baseline{"W1": {"sallyport-netns/nginx": 2.2 * c.factor}}
		lines, worse := Baseline{"W1": {"sallyport-netns/nginx": 2.2}}.Compare(then, .1)
		if (len(worse) > 0) != c.worse || !strings.Contains(lines[0], c.word) {
			t.Errorf("%s: %q %q", name, lines, worse)
		}
	}
	if _, worse := was.Compare(Baseline{}, 10); !slices.Equal(worse, []string{"W1"}) {
		t.Errorf("what could not be measured counts as well: %q", worse)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBaseline(path); err == nil {
		t.Error("half a file was read")
	}
}

// TestKeptBaseline: the file that make bench-check reads has every ratio.
func TestKeptBaseline(t *testing.T) {
	b, err := ReadBaseline("../baseline.json")
	if err != nil {
		t.Fatal(err)
	}
	for workload, peers := range kept() {
		for _, ours := range peers[0] {
			for _, other := range peers[1] {
				if b[workload][ours+"/"+other] <= 0 {
					t.Errorf("no ratio of %s to %s in %s", ours, other, workload)
				}
			}
		}
	}
}

// TestPicture: it is well-formed, has a bar for each peer but the one that is
// compared with, and names that are hostile stay names.
func TestPicture(t *testing.T) {
	groups := someSamples().Groups(map[string]string{"W1": "W1: <small>"}, "nginx")
	if len(groups) != 1 || len(groups[0].Bars) != 4 || groups[0].Bars[0].Label != "splice" || !groups[0].Bars[3].Ours {
		t.Fatalf("groups: %+v", groups)
	}
	var b bytes.Buffer
	if err := Picture(&b, "CPU & more", "nginx", groups); err != nil {
		t.Fatal(err)
	}
	bars := 0
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 4 {
		t.Errorf("%d bars", bars)
	}
}

func TestTable(t *testing.T) {
	s := someSamples()
	s[0].Error = "read | timeout"
	var b bytes.Buffer
	s.Table(&b, "W1", "small", []Metric{CPU, Rate}, CPU, []string{"nginx", "absent"})
	for _, want := range []string{"### W1: small", "÷ nginx", "read / timeout", " 0.50, 2 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "absent") {
		t.Error("a column for a peer that was not there")
	}
	for v, want := range map[float64]string{0: "0", 1: "1", 0.123: "0.12", 9.96: "10.0", 12.34: "12.3", 99.7: "100", 12345: "12345"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

func TestSummary(t *testing.T) {
	var b bytes.Buffer
	lines := []Line{{"W1", "small", CPU}, {"W1", "small", Rate}, {"W2", "absent", CPU}}
	someSamples().Summary(&b, lines, []Column{{"nginx", []string{"nginx"}}, {"ours", []string{"absent", "sallyport-netns"}}, {"absent", []string{"absent"}}})
	someSamples().Summary(&b, lines[2:], []Column{{"nginx", []string{"nginx"}}})
	if got := strings.Join(strings.Fields(b.String()), " "); got != "| | figure | nginx | ours | |-------|--------|------:|-----:| | small | CPU µs | 40.0 | 88.0 | | small | per s | 667 | 667 |" {
		t.Errorf("summary:\n%s", b.String())
	}
	const begin, end = "<!-- written by make it: begin -->\n", "<!-- written by make it: end -->\n"
	document := []byte("before\n" + begin + "old\n" + end + "after\n")
	for range 2 { // what was inserted is replaced
		var err error
		if document, err = Insert(document, "make it", []byte("new\n")); err != nil {
			t.Fatal(err)
		}
		if want := "before\n" + begin + "new\n" + end + "after\n"; string(document) != want {
			t.Errorf("document:\n%s", document)
		}
	}
	for _, bad := range []string{"", begin, end, end + begin} {
		if _, err := Insert([]byte(bad), "make it", nil); err == nil {
			t.Errorf("a place was found in %q", bad)
		}
	}
}

// TestReadme: the README has the place that make bench writes to.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"make bench", "make bench-growth"} {
		if _, err := Insert(text, who, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestGrowth: a line for what was measured, none for what was not.
func TestGrowth(t *testing.T) {
	var s Samples
	for size, v := range map[string]float64{"10": 2, "100": 2.2, "1000": 3, "10000": 4} {
		s = append(s, Sample{Workload: "rules", Peer: size, Values: map[Metric]float64{CPU: v}})
	}
	var out strings.Builder
	sizes := []int{10, 100, 1000, 10_000}
	s.Growth(&out, []Curve{{"rules", "rules", "CPU", CPU, sizes}, {"names", "names", "CPU", CPU, sizes}})
	for _, want := range []string{"× 10 |", "| rules | CPU ", "  10 |", "2.20 µs (1.10)", "3 µs (1.50)", "4 µs (2)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "names") {
		t.Errorf("what was not measured has a line:\n%s", &out)
	}
}
