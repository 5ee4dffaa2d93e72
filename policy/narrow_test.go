package policy

import (
	"slices"
	"testing"
	"time"
)

// narrowable allows a little of everything.
func narrowable(t *testing.T, mode Mode) *Set {
	t.Helper()
	doc := sandboxDoc(
		allowRule("api.test", methods("GET", "POST"), line(10)),
		allowRule("*.wild.test", line(11)),
		denyRule("evil.wild.test", line(12)),
		Rule{Action: ActionPassthrough, Host: "pinned.test", Reason: "pins", Pos: Pos{File: "ci.hcl", Line: 13}},
		Rule{Action: ActionTCP, Host: "db.test", Ports: []uint16{5432}, Pos: Pos{File: "ci.hcl", Line: 14}},
		allowRule("old.test", line(15), func(r *Rule) { r.Expires = day }),
	)
	doc.Sandboxes[0].Mode = mode
	return mustCompile(t, doc)
}

var day = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func mustNarrow(t *testing.T, spec NarrowingSpec) *Narrowing {
	t.Helper()
	n, err := NewNarrowing(spec)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNarrowingTakesAway(t *testing.T) {
	for _, mode := range []Mode{Enforce, Report} {
		s := narrowable(t, mode)
		n := mustNarrow(t, NarrowingSpec{Only: []string{"API.test.", "a.wild.test", "pinned.test", "db.test", "nowhere.test"}, Methods: []string{"GET"}, Expires: day})
		before := day.Add(-time.Second)
		post := get("api.test", "/")
		post.Method = "POST"
		for _, tt := range []struct {
			name string
			r    Request
			now  time.Time
			want Reason
		}{
			{"name", name("api.test"), before, RuleAllow},
			{"connection", conn("api.test", 443, HTTPS), before, RuleAllow},
			{"request", get("api.test", "/"), before, RuleAllow},
			{"method of the parent", post, before, MethodNotAllowed},
			{"below a wildcard", get("a.wild.test", "/"), before, RuleAllow},
			{"beside it", get("b.wild.test", "/"), before, HostNotAllowed},
			{"name beside it", name("b.wild.test"), before, HostNotAllowed},
			{"name of what is relayed", name("pinned.test"), before, PassthroughAllow},
			{"passthrough has no method", conn("pinned.test", 443, HTTPS), before, MethodNotAllowed},
			{"raw TCP has no method", conn("db.test", 5432, TCP), before, MethodNotAllowed},
			{"over", name("api.test"), day, RuleExpired},
			{"over, connection", conn("api.test", 443, HTTPS), day, RuleExpired},
			{"over, request", get("api.test", "/"), day, RuleExpired},
			{"without a clock", get("api.test", "/"), time.Time{}, RuleExpired},
		} {
			tt.r.Narrow, tt.r.Now = n, tt.now
			if d := s.Decide(tt.r); d.Reason != tt.want || (d.Verdict == Allow) != (tt.want == RuleAllow || tt.want == PassthroughAllow) {
				t.Errorf("mode %d: %s: %v %s, want %s", mode, tt.name, d.Verdict, d.Reason, tt.want)
			}
		}
	}
}

// TestNarrowingNeverWidens: whatever is asked with a narrowing is allowed
// without it too, and in the same way.
func TestNarrowingNeverWidens(t *testing.T) {
	specs := []NarrowingSpec{
		{}, {Only: []string{"*"}}, {Only: []string{"api.test"}}, {Only: []string{"evil.wild.test", "other.test"}},
		{Methods: []string{"GET"}}, {Methods: []string{"DELETE"}}, {Only: []string{"*.wild.test"}, Methods: []string{"POST"}, Expires: day},
	}
	s := narrowable(t, Enforce)
	for _, host := range []string{"api.test", "a.wild.test", "evil.wild.test", "pinned.test", "db.test", "old.test", "other.test", "192.0.2.1"} {
		for _, port := range []uint16{80, 443, 5432} {
			for _, scheme := range []Scheme{HTTPS, HTTP, TCP} {
				for _, method := range []string{"GET", "POST", "DELETE"} {
					for _, stage := range []Stage{StageName, StageConn, StageRequest} {
						r := Request{Sandbox: "s1", Stage: stage, Host: host, Port: port, Scheme: scheme, Method: method, Path: "/", Now: day.Add(-time.Hour)}
						plain := s.Decide(r)
						for i, spec := range append(specs, NarrowingSpec{Only: []string{host}}) {
							r.Narrow = mustNarrow(t, spec)
							d := s.Decide(r)
							if d.Verdict == Allow && (plain.Verdict != Allow || d.Relay != plain.Relay || d.Rule != plain.Rule || !slices.Equal(d.Inject, plain.Inject)) {
								t.Errorf("spec %d: %+v is %+v, without it %+v", i, r, d, plain)
							}
							if plain.Verdict == Allow && d.Verdict != Allow && (i == 0 || i == len(specs)) {
								t.Errorf("spec %d takes away %+v: %s", i, r, d.Reason)
							}
						}
						r.Narrow = &Narrowing{}
						if s.Decide(r).Verdict == Allow {
							t.Errorf("zero narrowing allows %+v", r)
						}
					}
				}
			}
		}
	}
}

func TestCheckNarrowing(t *testing.T) {
	for _, mode := range []Mode{Enforce, Report} {
		s := narrowable(t, mode)
		for _, tt := range []struct {
			name   string
			parent string
			spec   NarrowingSpec
			want   []string // pointers
			line   int      // of the nearest rule of the first
		}{
			{name: "nothing", parent: "s1"},
			{name: "exact", parent: "s1", spec: NarrowingSpec{Only: []string{"api.test"}, Methods: []string{"GET", "POST"}}},
			{name: "below a wildcard", parent: "s1", spec: NarrowingSpec{Only: []string{"x.wild.test", "*.y.wild.test", "*.wild.test"}, Methods: []string{"DELETE"}}},
			{name: "raw", parent: "s1", spec: NarrowingSpec{Only: []string{"pinned.test", "db.test"}}},
			{name: "method of some host", parent: "s1", spec: NarrowingSpec{Methods: []string{"POST"}}},
			{name: "no such parent", parent: "cj", spec: NarrowingSpec{Only: []string{"api.test"}}, want: []string{"/parent"}},
			{name: "host beyond", parent: "s1", spec: NarrowingSpec{Only: []string{"api.test", "apii.test"}}, want: []string{"/only/1"}, line: 10},
			{name: "wider wildcard", parent: "s1", spec: NarrowingSpec{Only: []string{"*.test"}}, want: []string{"/only/0"}},
			{name: "any host", parent: "s1", spec: NarrowingSpec{Only: []string{"*"}}, want: []string{"/only/0"}},
			{name: "denied", parent: "s1", spec: NarrowingSpec{Only: []string{"evil.wild.test"}}, want: []string{"/only/0"}, line: 12},
			{name: "below a denied", parent: "s1", spec: NarrowingSpec{Only: []string{"old.test"}, Methods: []string{"GET"}}, want: []string{"/only/0"}, line: 15},
			{name: "no pattern", parent: "s1", spec: NarrowingSpec{Only: []string{"*api.test", ""}}, want: []string{"/only/0", "/only/1"}},
			{name: "method beyond", parent: "s1", spec: NarrowingSpec{Only: []string{"api.test", "x.wild.test"}, Methods: []string{"GET", "DELETE"}}, want: []string{"/methods/1"}, line: 10},
			{name: "method of what is not read", parent: "s1", spec: NarrowingSpec{Only: []string{"pinned.test"}, Methods: []string{"GET"}}, want: []string{"/methods/0"}, line: 13},
			{name: "method never forwarded", parent: "s1", spec: NarrowingSpec{Methods: []string{"CONNECT", "get", ""}}, want: []string{"/methods/0", "/methods/1", "/methods/2"}},
			{name: "over", parent: "s1", spec: NarrowingSpec{Expires: day.Add(time.Hour)}, want: []string{"/ttl"}},
		} {
			faults := s.CheckNarrowing(tt.parent, tt.spec, day.Add(time.Hour))
			var got []string
			for _, f := range faults {
				got = append(got, f.Pointer)
				if f.Detail == "" {
					t.Errorf("%s: %s without a word", tt.name, f.Pointer)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("mode %d: %s: %v, want %v", mode, tt.name, faults, tt.want)
				continue
			}
			if tt.line != 0 && (faults[0].Nearest == nil || faults[0].Nearest.Pos.Line != tt.line) {
				t.Errorf("%s: nearest %+v, want line %d", tt.name, faults[0].Nearest, tt.line)
			}
		}
	}
	if f := (*Set)(nil).CheckNarrowing("s1", NarrowingSpec{}, day); len(f) != 1 {
		t.Errorf("no policy: %v", f)
	}
}

func TestNarrowingAllocations(t *testing.T) {
	s := narrowable(t, Enforce)
	r := get("api.test", "/")
	r.Now, r.Narrow = day.Add(-time.Hour), mustNarrow(t, NarrowingSpec{Only: []string{"api.test"}, Methods: []string{"GET"}, Expires: day})
	if n := testing.AllocsPerRun(100, func() { s.Decide(r) }); n != 0 {
		t.Errorf("%v allocations a decision", n)
	}
}
