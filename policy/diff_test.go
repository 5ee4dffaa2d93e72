package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// covers reports whether a change speaks of a request.
func (c *Change) covers(r Request) bool {
	if c.What == CapSetting || len(c.Sandboxes) == 0 || !c.Hosts.Match(r.Host) || !c.Ports.Has(r.Port) {
		return false
	}
	if r.Now.Before(c.From) || !c.Until.IsZero() && !r.Now.Before(c.Until) {
		return false
	}
	if c.What == CapRelay {
		return r.Stage == StageConn
	}
	if r.Stage == StageConn {
		return c.Scheme == TCP
	}
	if c.Scheme != SchemeAny && c.Scheme != r.Scheme || !c.Methods.Has(r.Method) || !c.hasVariant(r) {
		return false
	}
	p, ambiguous := NormalPath(r.Path)
	form := formOf(p, ambiguous)
	switch {
	case len(c.Paths) == 0 && c.Form == "":
		return true
	case c.Form != "":
		return c.Form == form || c.Form == formParams && p.params
	}
	return form == "" && slices.ContainsFunc(c.Paths, func(s PathSet) bool { return s.holds(p) })
}

func formOf(p Path, ambiguous bool) string {
	switch {
	case p.asterisk:
		return formAsterisk
	case ambiguous && !p.slash:
		return formAmbiguous
	case p.slash:
		return formSlash
	}
	return ""
}

// hasVariant reports whether a request has what the change says of query,
// header and WebSocket.
func (c *Change) hasVariant(r Request) bool {
	best, found := HostPattern{}, false
	for p := range c.at {
		if p.Match(r.Host) && (!found || p.narrower(best)) {
			best, found = p, true
		}
	}
	at := c.at[best]
	return slices.ContainsFunc(at.variants, func(i int) bool {
		v := at.grid.variants[i]
		if v.ws != r.WebSocket && slices.ContainsFunc(at.grid.variants, func(x variant) bool { return x.ws }) {
			return false
		}
		return sameValues(at.grid, v, r) && sameBody(at.grid, v, r)
	})
}

// sameValues compares a request with a variant by every condition that some
// rule of the host has, and by what git asks.
func sameValues(g *grid, v variant, r Request) bool {
	for _, x := range g.variants {
		if strings.HasPrefix(x.query, "service=") && (x.query == v.query) != (x.query == r.Query) {
			return false
		}
	}
	for _, x := range g.variants {
		value, asks := strings.CutPrefix(x.query, "k=")
		value, _, _ = strings.Cut(value, "&")
		for _, line := range x.header["X-A"] {
			for _, c := range []condition{{header: true, name: "X-A", values: []string{line}}, {header: true, name: "X-A"}} {
				if line == "z" {
					c.values = nil
				}
				one := rule{shape: &shape{conds: []condition{c}}}
				if one.headersFit(v.header) != one.headersFit(r.Header) {
					return false
				}
			}
		}
		if !asks {
			continue
		}
		for _, c := range []condition{{name: "k", values: []string{value}}, {name: "k"}} {
			if value == "z" {
				c.values = nil
			}
			if c.inQuery(v.query) != c.inQuery(r.Query) {
				return false
			}
		}
	}
	return true
}

// sameBody compares a request with a variant by every condition that some rule
// of the host has on the body, and by whether the query says more than the
// rules name.
func sameBody(g *grid, v variant, r Request) bool {
	names := slices.ContainsFunc(g.variants, func(x variant) bool { return strings.HasPrefix(x.query, "k=") })
	more := func(query string) bool {
		return query != "" && slices.ContainsFunc(strings.Split(query, "&"), func(pair string) bool { return !names || !strings.HasPrefix(pair, "k=") })
	}
	if len(g.bodies) > 0 && !r.WebSocket && more(v.query) != more(r.Query) {
		return false
	}
	return !slices.ContainsFunc(g.bodies, func(c *bodyCondition) bool { return c.fits(v.body) != c.fits(r.Body) })
}

// planRequests are requests of every kind to one host, at two times.
func planRequests(host string) []Request {
	var out []Request
	for _, port := range []uint16{80, 443, 8443, 9999} {
		out = append(out, Request{Stage: StageConn, Host: host, Port: port})
		for _, scheme := range []Scheme{HTTPS, HTTP} {
			for _, r := range lawRequests(host, port, scheme) {
				out = append(out, r)
				if r.Path == "/x" && r.Method == "POST" && r.Body != nil {
					r.Query = "k=1"
					out = append(out, r)
					r.Query = ""
					r.Header = map[string][]string{"X-A": {"1"}}
					out = append(out, r)
					continue
				}
				if r.Path == "/x" {
					r.Query = "k=1"
					out = append(out, r)
					r.Query = "k=3&z=2"
					out = append(out, r)
					r.Header = map[string][]string{"X-A": {"1"}}
					out = append(out, r)
					r.Query, r.Header = "k=1", map[string][]string{"X-A": {"2"}}
					out = append(out, r)
				}
			}
			for _, path := range []string{"/z", "/x/z/y", "/x%2Fy/z", "/x/y%2Fz", "/z;p", "/o/r/git-receive-pack", "/o/r.git/info/refs"} {
				out = append(out, Request{Stage: StageRequest, Host: host, Port: port, Scheme: scheme, Method: "GET", Path: path},
					Request{Stage: StageRequest, Host: host, Port: port, Scheme: scheme, Method: "POST", Path: path})
			}
		}
	}
	for i := range out {
		out[i].Sandbox, out[i].Now = "s1", now
	}
	for _, r := range slices.Clone(out) {
		r.Now = now.Add(2 * time.Hour)
		out = append(out, r)
	}
	return out
}

// given is what the gateway would let through, by the decider alone.
func given(s *Set, r Request) (access string, inject []string) {
	if r.Stage == StageConn {
		d := s.Decide(r)
		if d.Verdict == Deny {
			return "", nil
		}
		if d.Relay == RelayTCP {
			return "any", nil
		}
		r.Scheme = HTTPS
		if d = s.Decide(r); d.Relay == RelayPassthrough {
			return "TLS", nil
		}
		return "", nil
	}
	d, stage := s.walk(r)
	if d.Verdict == Deny {
		return "", nil
	}
	if stage == StageRequest {
		inject = d.Inject
	}
	return "access", inject
}

// checkDiff compares the changes with a decision of every request by both
// policies: what changed is said, and what is said of plain paths changed.
func checkDiff(old, next *Set) error {
	changes := Diff(old, next, now)
	var here []Change // about the host at hand
	relay := func(gains bool, r Request) bool {
		r.Stage = StageConn
		return slices.ContainsFunc(here, func(c Change) bool { return c.Gains == gains && c.What == CapRelay && c.covers(r) })
	}
	says := func(gains bool, r Request, what Capability, detail string) bool {
		return slices.ContainsFunc(here, func(c Change) bool {
			return c.Gains == gains && c.What == what && (detail == "" || c.Detail == detail) && c.covers(r)
		})
	}
	for _, host := range append(slices.Clone(lawHosts), "x.d.test", "y.a.test", "other.test") {
		here = slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return !c.Hosts.Match(host) })
		if slices.ContainsFunc(here, func(c Change) bool { return strings.Contains(c.Detail, "too many to be compared") }) {
			continue
		}
		for _, r := range planRequests(host) {
			if r.Stage == StageRequest && !forwardable(r.Method) {
				continue // it is nowhere let through but inside of a relayed connection, of which its own change speaks
			}
			was, hadKeys := given(old, r)
			is, hasKeys := given(next, r)
			what := CapAccess
			if r.Stage == StageConn {
				what = CapRelay
			}
			p, ambiguous := NormalPath(r.Path)
			exact := formOf(p, ambiguous) == "" && !p.params
			gained, lost := was == "" && is != "", was != "" && is == ""
			if what == CapRelay && was != is {
				gained, lost = is != "", was != ""
			}
			if got := says(true, r, what, ""); gained && !got && !relay(true, r) || got && !gained && exact {
				return fmt.Errorf("gained %v, said %v: %+v", gained, got, r)
			}
			if got := says(false, r, what, ""); lost && !got && !relay(false, r) || got && !lost && exact {
				return fmt.Errorf("lost %v, said %v: %+v", lost, got, r)
			}
			for _, key := range hasKeys {
				if is != "" && !slices.Contains(hadKeys, key) && !says(true, r, CapSecret, key) {
					return fmt.Errorf("secret %s is gained and not said: %+v", key, r)
				}
			}
		}
	}
	for _, c := range changes {
		if c.Gains && !c.Widening && c.What != CapSetting && c.What != CapLimits {
			return fmt.Errorf("gain is no widening: %+v", c)
		}
	}
	return nil
}

// drawEdit draws a policy and one that was made of it.
func drawEdit(s *byteSource) (old, next Document) {
	old = drawDocument(s)
	old.Secrets = []Secret{{Name: "API_KEY", Hosts: []string{"a.test", "b.a.test"}, Source: Source{Kind: "env"}}}
	edit := func(rules []Rule) []Rule {
		for i := range rules {
			if r := &rules[i]; r.Action == ActionAllow {
				if (r.Host == "a.test" || r.Host == "b.a.test") && s.pick(3) == 0 {
					r.Inject = []Ref{{Name: "API_KEY"}}
				}
				if s.pick(4) == 0 {
					r.GraphQL, r.JSONRPC = nil, nil
					drawBody(s, r)
				}
				if s.pick(4) == 0 {
					r.Query = map[string][]string{"k": choose(s, []string{"1"}, []string{"1", "2"}, []string{"*"})}
				}
				if s.pick(4) == 0 {
					r.Headers = map[string][]string{"x-a": choose(s, []string{"1"}, []string{"*"})}
				}
			}
		}
		return rules
	}
	old.Sandboxes[0].Rules = edit(old.Sandboxes[0].Rules)
	next = old
	next.Sandboxes = slices.Clone(old.Sandboxes)
	next.Groups = slices.Clone(old.Groups)
	rules := slices.Clone(old.Sandboxes[0].Rules)
	switch i := s.pick(len(rules)); s.pick(5) {
	case 0:
		rules = slices.Delete(rules, i, i+1)
	case 1:
		rules = append(rules, drawRule(s), drawRule(s))
	case 2:
		rules = edit(rules)
	case 3:
		next.Groups[0].Rules = []Rule{drawRule(s)}
	default:
		next.Sandboxes[0].Mode = Report - next.Sandboxes[0].Mode
	}
	next.Sandboxes[0].Rules = rules
	return old, next
}

// TestDiffIsSound compares Diff with brute force over generated policies.
func TestDiffIsSound(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 40, 200).Draw(t, "bytes")
		src := &byteSource{b: b}
		a, z := drawEdit(src)
		if src.pick(2) == 0 {
			a.Org, z.Org = nil, nil
		}
		old, _ := Compile(a, 1)
		next, _ := Compile(z, 2)
		if old == nil || next == nil {
			return
		}
		compiled++
		if err := checkDiff(old, next); err != nil {
			t.Fatalf("%v\nold %+v\nnew %+v", err, a, z)
		}
		if len(Diff(old, old, now)) > 0 {
			t.Fatalf("a policy differs from itself")
		}
	})
	if compiled == 0 {
		t.Error("no pair of policies compiled")
	}
}

// TestDiffNamesAddresses: no wildcard stands for an address, so a statement
// names each by itself.
func TestDiffNamesAddresses(t *testing.T) {
	all := allowRule("*", line(1))
	address := allowRule("10.0.0.1", line(2))
	address.Addresses = []prefix{prefixOf("10.0.0.1/32")}
	doc := func(rules ...Rule) *Set {
		d := sandboxDoc(rules...)
		d.Org = &Org{AnyHost: true, Rules: []Rule{all, address}}
		return mustCompile(t, d)
	}
	for name, tt := range map[string]struct {
		next *Set
		want string
	}{
		"names alone":   {doc(all), "*"},
		"with one":      {doc(all, address), "*, 10.0.0.1"},
		"the one alone": {doc(address), "10.0.0.1"},
	} {
		for _, c := range Diff(doc(), tt.next, now) {
			if c.What == CapAccess && c.Hosts.String() != tt.want {
				t.Errorf("%s: %s, want %s", name, c.Hosts.String(), tt.want)
			}
		}
	}
}
