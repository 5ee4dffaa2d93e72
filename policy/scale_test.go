package policy

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// scaleDocument is case POL-22: a group of 50,000 exact hosts and 10,000
// wildcards under an org that uses it, and 200 sandboxes that use both, each
// with rules of its own. Host ten.test has ten rules in the group.
func scaleDocument() Document {
	big := Group{Name: "big"}
	for i := range 50_000 {
		big.Rules = append(big.Rules, allowRule("host-"+strconv.Itoa(i)+".example-"+strconv.Itoa(i%977)+".test", line(i+1)))
	}
	for i := range 10_000 {
		big.Rules = append(big.Rules, allowRule("*.wild-"+strconv.Itoa(i)+".example.test", line(100_000+i)))
	}
	for i := range 10 {
		r := allowRule("api.ten.test", line(200_000+i), methods("GET", "POST"), paths("/v"+strconv.Itoa(i)+"/**"), inject("API_KEY"))
		big.Rules = append(big.Rules, r)
	}
	doc := Document{
		Org:     &Org{Use: []Ref{{Name: "big"}}, Rules: []Rule{allowRule("*.own.test"), denyRule("*.ngrok.io"), ruleOf(ActionTCP, "*.db.test:5432")}},
		Groups:  []Group{big},
		Secrets: []Secret{{Name: "API_KEY", Hosts: []string{"api.ten.test"}}},
	}
	for i := range 200 {
		doc.Sandboxes = append(doc.Sandboxes, Sandbox{
			Name:  "s" + strconv.Itoa(i),
			Use:   []Ref{{Name: "big"}},
			Match: Match{Interfaces: []string{fmt.Sprintf("tap%d", i)}},
			Rules: []Rule{allowRule("a" + strconv.Itoa(i) + ".own.test"), ruleOf(ActionTCP, "x"+strconv.Itoa(i)+".db.test:5432"), ruleOf(ActionTCP, "*.y.db.test:5432")},
		})
	}
	return doc
}

func TestPOL22Scale(t *testing.T) {
	doc := scaleDocument()
	start := time.Now()
	s := mustCompile(t, doc)
	took := time.Since(start)
	t.Logf("compiled %d rules for %d sandboxes in %v", len(doc.Groups[0].Rules), len(doc.Sandboxes), took)
	if took > 20*time.Second { // ten times the target, so that only another order of growth fails
		t.Errorf("compiled in %v", took)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 300<<20 {
		t.Errorf("%d MiB in use with the document and its set", m.HeapAlloc>>20)
	}
	wantReason(t, s, get("host-49999.example-172.test", "/"), GroupAllow)
	wantReason(t, s, get("x.y.wild-9999.example.test", "/"), GroupAllow)
	wantReason(t, s, get("host-50000.example-172.test", "/"), HostNotAllowed)
	wantReason(t, s, get("a1.own.test", "/"), RuleAllow)
	wantReason(t, s, get("a2.own.test", "/"), HostNotAllowed)
	runtime.KeepAlive(doc)
}

func TestDecideDoesNotAllocate(t *testing.T) {
	s := mustCompile(t, scaleDocument())
	for title, r := range map[string]Request{
		"name":            name("api.ten.test"),
		"connection":      conn("api.ten.test", 443, SchemeAny),
		"request":         request("POST", "api.ten.test", "/v9/chat/completions"),
		"escaped path":    request("POST", "api.ten.test", "/v9/chat/%7Euser"),
		"wildcard":        get("a.b.wild-77.example.test", "/x"),
		"raw TCP":         conn("x1.db.test", 5432, SchemeAny),
		"group of one":    get("host-7.example-7.test", "/"),
		"sandbox's own":   get("a1.own.test", "/"),
		"deep host":       get("a.b.c.d.e.f.wild-77.example.test", "/x"),
		"request, 2 runs": request("GET", "api.ten.test", "/v0/"),
	} {
		t.Run(title, func(t *testing.T) {
			if d := s.Decide(r); d.Verdict != Allow {
				t.Fatalf("denied: %s", d.Message)
			}
			if n := testing.AllocsPerRun(200, func() { s.Decide(r) }); n != 0 {
				t.Errorf("%v allocations, want 0", n)
			}
		})
	}
	if n := testing.AllocsPerRun(200, func() { s.Decide(get("evil.test", "/")) }); n > 1 {
		t.Errorf("%v allocations for a denial, want its message alone", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	s := mustCompile(b, scaleDocument())
	for title, r := range map[string]Request{
		"ten rules":  request("POST", "api.ten.test", "/v9/chat/completions"),
		"connection": conn("api.ten.test", 443, SchemeAny),
		"one rule":   get("host-7.example-7.test", "/"),
		"wildcard":   get("a.b.wild-77.example.test", "/x"),
		"denied":     get("evil.test", "/"),
	} {
		b.Run(title, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Decide(r)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	doc := scaleDocument()
	for b.Loop() {
		if s, _ := Compile(doc, 1); s == nil {
			b.Fatal("the policy does not compile")
		}
	}
}

func BenchmarkCanonicalHost(b *testing.B) {
	for _, host := range []string{"api.good.test", "API.Good.Test.", "bücher.example", "2001:db8::1"} {
		b.Run(host, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = CanonicalHost(host)
			}
		})
	}
}
