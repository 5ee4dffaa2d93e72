package audit

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	l := openTest(t, Options{Now: fakeClock(start, 10*time.Second)})
	for i := range 90 {
		e := denial(fmt.Sprintf("h%d.test", i%3))
		switch {
		case i%9 == 0:
			e.Verdict, e.Reason = "allow", "rule_allow"
		case i%9 == 1:
			e.Verdict, e.Reason, e.Would = "allow", "report_mode", &Would{"deny", "path_not_allowed"}
		case i == 89:
			e.Count, e.Sandbox = 100, &Sandbox{Name: "flood"}
		}
		if err := l.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Write(&Event{Kind: KindHTTP, Phase: PhaseEnd, Host: "h0.test"}); err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(t.Context(), []string{l.o.Dir}, Filter{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if s.Decisions != 189 || s.Allowed != 10 || s.Would != 10 || s.Blocked != 169 {
		t.Errorf("summary %+v", s)
	}
	var sum uint64
	for _, n := range s.Bins {
		sum += n
	}
	if sum != s.Decisions || len(s.Bins) > summaryBins || len(s.Bins) < summaryBins/3 {
		t.Errorf("%d bins of %d decisions", len(s.Bins), sum)
	}
	names := func(list []Tally) (out []string) {
		for _, x := range list {
			var sum uint64
			for _, n := range x.Bins {
				sum += n
			}
			if sum != x.Count {
				t.Errorf("%s: bins of %d, count %d", x.Name, sum, x.Count)
			}
			out = append(out, fmt.Sprint(x.Name, " ", x.Count, " ", x.Blocked))
		}
		return out
	}
	if diff := cmp.Diff([]string{"h2.test 129 129", "h0.test 30 20"}, names(s.Hosts)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"host_not_allowed 169 169", "path_not_allowed 10 0"}, names(s.Reasons)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"flood 100 100", "ci 89 69"}, names(s.Sandboxes)); diff != "" {
		t.Error(diff)
	}
}

func TestSummaryIsBounded(t *testing.T) {
	a := &axis{step: time.Second}
	list := newTallies(a)
	at := time.Unix(0, 0)
	for i := range summaryNames + 100 {
		list.add(fmt.Sprint(i), &Event{Time: at}, a.bin(at), 1)
	}
	if top := list.top(1); len(list.by) != summaryNames+1 || top[0].Name != OtherNames || top[0].Count != 100 {
		t.Errorf("%d names, top %+v", len(list.by), top)
	}
}

func TestSummarizeNothing(t *testing.T) {
	s, err := Summarize(t.Context(), []string{filepath.Join(t.TempDir(), "absent")}, Filter{}, 5)
	if err != nil || s.Decisions != 0 || len(s.Hosts) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSparkline(t *testing.T) {
	if got := Sparkline([]uint64{0, 1, 4, 8}); got != " ▂▅█" {
		t.Errorf("%q", got)
	}
}
