package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hosts reads the logs at dirs and returns the hosts of what passes f.
func hosts(t testing.TB, f Filter, dirs ...string) []string {
	t.Helper()
	var list []string
	for e, err := range Read(t.Context(), dirs, f) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Host)
	}
	return list
}

// fakeClock counts a second per call from a fixed time.
func fakeClock(start time.Time, step time.Duration) func() time.Time {
	var mu sync.Mutex
	now := start
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(step)
		return now
	}
}

func TestReadFilters(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 2 << 10})
	events := []*Event{
		{Kind: KindDNS, Phase: PhaseDecision, Verdict: "deny", Reason: "host_not_allowed", Sandbox: &Sandbox{Name: "ci", ID: "1"}, Host: "a.test"},
		{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Reason: "rule_allow", Sandbox: &Sandbox{Name: "ci", ID: "1"}, Host: "b.test", Conn: "c1", Req: "r1"},
		{Kind: KindHTTP, Phase: PhaseEnd, Sandbox: &Sandbox{Name: "ci", ID: "1"}, Host: "b.test", Conn: "c1", Req: "r1", Error: &Error{Class: "reset"}},
		{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "deny", Reason: "placeholder_leak", Severity: Critical, Sandbox: &Sandbox{Name: "dev", ID: "2"}, Host: "c.b.test"},
		{Kind: KindPacket, Phase: PhaseDecision, Verdict: "deny", Reason: "udp_blocked", Sandbox: &Sandbox{ID: "3"}, Dst: &Addr{IP: "192.0.2.1", Port: 9}},
		{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Reason: "report_mode", Would: &Would{"deny", "path_not_allowed"}, Sandbox: &Sandbox{Name: "dev", ID: "2"}, Host: "d.test"},
	}
	for _, e := range events {
		if err := l.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		f    Filter
		want []string
	}{
		"all":             {Filter{}, []string{"a.test", "b.test", "b.test", "c.b.test", "", "d.test"}},
		"last two":        {Filter{Limit: 2}, []string{"", "d.test"}},
		"more than all":   {Filter{Limit: 100}, []string{"a.test", "b.test", "b.test", "c.b.test", "", "d.test"}},
		"blocked":         {Filter{Blocked: true}, []string{"a.test", "c.b.test", ""}},
		"last blocked":    {Filter{Blocked: true, Limit: 2}, []string{"c.b.test", ""}},
		"sandbox name":    {Filter{Sandbox: "dev"}, []string{"c.b.test", "d.test"}},
		"sandbox id":      {Filter{Sandbox: "3"}, []string{""}},
		"reason":          {Filter{Reason: "udp_blocked"}, []string{""}},
		"spared reason":   {Filter{Reason: "path_not_allowed"}, []string{"d.test"}},
		"error class":     {Filter{Reason: "reset"}, []string{"b.test"}},
		"class of a name": {Filter{Reason: "reset", Sandbox: "ci"}, []string{"b.test"}},
		"verdict":         {Filter{Verdict: "allow"}, []string{"b.test", "d.test"}},
		"kind":            {Filter{Kind: "dns"}, []string{"a.test"}},
		"host":            {Filter{Host: "b.test"}, []string{"b.test", "b.test"}},
		"host glob":       {Filter{Host: "*.b.test"}, []string{"c.b.test"}},
		"host case":       {Filter{Host: "A.TEST"}, []string{"a.test"}},
		"address":         {Filter{Host: "192.0.2.*"}, []string{""}},
		"alerts":          {Filter{Alerts: true}, []string{"c.b.test"}},
		"request":         {Filter{Req: "r1"}, []string{"b.test", "b.test"}},
		"connection":      {Filter{Conn: "c1", Limit: 1}, []string{"b.test"}},
		"since":           {Filter{Since: events[4].Time}, []string{"", "d.test"}},
		"until":           {Filter{Until: events[1].Time}, []string{"a.test"}},
		"since and limit": {Filter{Since: events[4].Time, Limit: 5}, []string{"", "d.test"}},
		"nothing":         {Filter{Reason: "smuggling"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, hosts(t, test.f, l.o.Dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadAcrossBlocksAndSegments(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 300 << 10})
	var want []string
	for i := range 3000 {
		want = append(want, fmt.Sprintf("h%d.test", i))
		write(t, l, want[i])
	}
	if diff := cmp.Diff(want, hosts(t, Filter{}, l.o.Dir)); diff != "" {
		t.Error("forward:", diff)
	}
	for _, n := range []int{1, 7, 800, 2999, 3000} {
		if diff := cmp.Diff(want[3000-n:], hosts(t, Filter{Limit: n}, l.o.Dir)); diff != "" {
			t.Errorf("last %d: %s", n, diff)
		}
	}
}

func TestReadByNameOfAQuestionWithoutAHost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, SegmentBytes: 512 << 10, Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		e := denial("")
		e.Reason, e.DNS.QName = "bad_hostname", fmt.Sprintf("Bad_%d..TEST", i)
		e.Sandbox.Labels = map[string]string{"host": "x"}
		if i%2 == 0 {
			e.Sandbox.Labels = nil
		}
		if err := l.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	for range 2 {
		for _, name := range []string{"bad_10..test", "Bad_11..TEST"} {
			if got := hosts(t, Filter{Host: name}, dir); len(got) != 1 {
				t.Errorf("%d records of %s", len(got), name)
			}
		}
		if err := newIndexer(dir).update(nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadMergesByTime(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	base := t.TempDir()
	a := openTest(t, Options{Dir: filepath.Join(base, "a"), Now: fakeClock(start, time.Second)})
	b := openTest(t, Options{Dir: filepath.Join(base, "b"), Now: fakeClock(start.Add(500*time.Millisecond), time.Second)})
	var all []*Event
	for i := range 5 {
		all = append(all, write(t, a, fmt.Sprintf("a%d.test", i)), write(t, b, fmt.Sprintf("b%d.test", i)))
	}
	got := hosts(t, Filter{}, a.o.Dir, b.o.Dir)
	if len(got) != len(all) {
		t.Fatalf("%d events, want %d", len(got), len(all))
	}
	var last time.Time
	for e, err := range Read(t.Context(), []string{base}, Filter{}) { // the parent stands for both
		if err != nil || e.Time.Before(last) {
			t.Fatalf("%v after %v: %v", e.Time, last, err)
		}
		last = e.Time
	}
	if diff := cmp.Diff(got[len(got)-3:], hosts(t, Filter{Limit: 3}, filepath.Join(base, "*"))); diff != "" {
		t.Error(diff)
	}
}

func TestReadGoesOnAfterABadLine(t *testing.T) {
	dir := smallSegments(t, 3)
	path := filepath.Join(dir, segmentName(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("\x00\xff not a record\n"), b...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{0, 10} {
		good, bad := 0, 0
		for e, err := range Read(t.Context(), []string{dir}, Filter{Limit: limit}) {
			if err != nil {
				bad++
			} else if e.Host != "" {
				good++
			}
		}
		if good != 3 || bad != 1 {
			t.Errorf("limit %d: %d good, %d bad lines, want 3 and 1", limit, good, bad)
		}
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	dir := smallSegments(t, 50)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for range Read(ctx, []string{dir}, Filter{}) {
		n++
		cancel()
	}
	if n > 2 {
		t.Errorf("%d events after the end of the context", n)
	}
}

func TestReadOfNothing(t *testing.T) {
	if got := hosts(t, Filter{}, filepath.Join(t.TempDir(), "absent"), t.TempDir()); got != nil {
		t.Errorf("read %q from nothing", got)
	}
}

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a*b", "ab", true}, {"a*b", "axxb", true}, {"a*b", "axxbc", false},
		{"*.test", "a.b.test", true}, {"*.test", ".test", true}, {"*.test", "test", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"**a**", "bab", true}, {"a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	}
	for _, test := range tests {
		if got := glob(test.pattern, test.s); got != test.want {
			t.Errorf("glob(%q, %q) = %v", test.pattern, test.s, got)
		}
	}
}
