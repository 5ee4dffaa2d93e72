package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// grid is the requests to one host that the rules of both policies tell
// apart: one for each choice of port, scheme, variant, method and path class.
type grid struct {
	host     string
	ports    []uint16 // the last one stands for all others
	methods  []string // the last one stands for all others
	variants []variant
	classes  []pathClass
	globs    []pathGlob
}

// variant is what a request has besides.
type variant struct {
	text   string // "": nothing that matters
	query  string
	header map[string][]string
	ws     bool
}

// endpointOf a cell: a port and what is spoken there. TCP stands for bytes
// that are relayed unopened.
type place struct {
	port   int // index
	scheme Scheme
}

// cell is one kind of request. A relayed connection has method and class -1.
type cell struct {
	place                  place
	variant, method, class int
}

// granted is what one side gives for one cell.
type granted struct {
	caps    map[string]capability
	d       Decision
	unread  bool // it is a request inside of bytes that are relayed unopened
	injects bool
}

// capability is something that is given, or its measure.
type capability struct {
	what   Capability
	detail string
	wider  bool // to gain it is a widening
}

// host returns the changes for one atom, without its hosts.
func (d *differ) host(a, b *side, atom hostAtom) []Change {
	rules := slices.Concat(a.rulesFor(atom.rep), b.rulesFor(atom.rep))
	g, err := newGrid(atom.rep, rules)
	if err != nil {
		return []Change{{Gains: true, Widening: true, What: CapSetting, Detail: err.Error(), Rules: sources(rules[:min(len(rules), 3)])}}
	}
	var out []Change
	times := d.times(rules)
	var open []Change // of the time before
	for i, at := range times {
		found := g.compare(a, b, at)
		for j := range found {
			if i > 0 {
				found[j].From = at
			}
			if i+1 < len(times) {
				found[j].Until = times[i+1]
			}
		}
		open, out = joinTimes(open, found, out)
	}
	return append(out, open...)
}

// joinTimes lengthens changes that go on, and finishes those that do not.
func joinTimes(open, found, done []Change) (next, out []Change) {
	for _, c := range open {
		i := slices.IndexFunc(found, func(f Change) bool { return f.timeless() == c.timeless() })
		if i < 0 {
			done = append(done, c)
			continue
		}
		found[i].From = c.From
		found[i].Rules = joinRules(c.Rules, found[i].Rules)
	}
	return found, done
}

func (c *Change) timeless() string {
	x := *c
	x.From, x.Until = time.Time{}, time.Time{}
	return x.key()
}

// times returns now and every later instant at which one of the rules ends.
func (d *differ) times(rules []*rule) []time.Time {
	out := []time.Time{d.now}
	for _, r := range rules {
		if e := r.src.Expires; !e.IsZero() && e.After(d.now) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

func (s *side) rulesFor(host string) []*rule {
	if s.s.index == nil {
		return nil
	}
	return s.s.index.rules(HostPattern{kind: hostExact, name: host}, &s.members, nil)
}

func newGrid(host string, rules []*rule) (*grid, error) {
	g := &grid{host: host}
	ports := map[uint16]bool{}
	methods := map[string]bool{}
	var slash, params, ws bool
	for _, r := range rules {
		for _, e := range r.ends.list {
			ports[e.port] = true
		}
		for _, m := range r.methods.list {
			methods[m] = true
		}
		if r.git != nil {
			methods["GET"], methods["POST"] = true, true
		}
		if r.git == nil {
			g.addGlobs(r.paths)
		}
		slash = slash || r.src.EncodedSlash
		params = params || r.src.Action == ActionDeny && len(r.paths) > 0
		ws = ws || r.src.NoWebSocket || !r.methods.any
	}
	if ws {
		methods["GET"] = true
	}
	n := len(g.globs)
	for _, r := range rules {
		if r.git != nil {
			g.addGlobs(r.git.calls())
		}
	}
	g.ports = append(slices.Sorted(maps.Keys(ports)), otherPort(ports))
	g.methods = append(slices.Sorted(maps.Keys(methods)), otherMethod(methods))
	var err error
	if g.classes, err = pathClasses(g.globs, n, slash, params); err != nil {
		return nil, err
	}
	g.variants, err = variantsOf(rules, ws)
	return g, err
}

func (g *grid) addGlobs(list []pathGlob) {
	for _, glob := range list {
		if !slices.ContainsFunc(g.globs, func(x pathGlob) bool { return x.String() == glob.String() && x.deep == glob.deep }) {
			g.globs = append(g.globs, glob)
		}
	}
}

func otherPort(ports map[uint16]bool) uint16 {
	p := uint16(65535)
	for ports[p] {
		p--
	}
	return p
}

func otherMethod(methods map[string]bool) string {
	m := "OTHER"
	for methods[m] {
		m += "X"
	}
	return m
}

// maxVariants bounds the combinations of conditions that are compared.
const maxVariants = 1024

// variantsOf returns one variant for each combination of what the rules ask
// of query and header.
func variantsOf(rules []*rule, ws bool) ([]variant, error) {
	out := []variant{{header: map[string][]string{}}}
	git := false
	asked := map[string]*condition{}
	for _, r := range rules {
		git = git || r.git != nil
		for _, c := range r.conds {
			have := asked[c.String()]
			if have == nil {
				have = &condition{header: c.header, name: c.name}
				asked[c.String()] = have
			}
			have.values = union(have.values, c.values)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		out = asked[key].multiply(out)
		if len(out) > maxVariants {
			return nil, fmt.Errorf("the rules' query and header conditions are too many to be compared")
		}
	}
	if git {
		for _, q := range []string{"service=git-upload-pack", "service=git-receive-pack"} {
			out = append(out, variant{text: "query " + q, query: q, header: map[string][]string{}})
		}
	}
	if ws {
		for _, v := range slices.Clone(out) {
			v.ws = true
			v.text = strings.TrimPrefix(v.text+", WebSocket", ", ")
			out = append(out, v)
		}
	}
	return out, nil
}

// multiply returns each variant without what the condition asks for, with
// each of its values, and with another one.
func (c *condition) multiply(list []variant) []variant {
	var out []variant
	other := "z"
	for slices.Contains(c.values, other) {
		other += "z"
	}
	for _, v := range list {
		out = append(out, v)
		for _, value := range append(slices.Clone(c.values), other) {
			w := variant{query: v.query, header: maps.Clone(v.header)}
			if c.header {
				w.header[c.name] = []string{value}
			} else {
				w.query = strings.TrimPrefix(v.query+"&"+formEscape(c.name)+"="+formEscape(value), "&")
			}
			shown := fmt.Sprintf("%s %q", c, value)
			if value == other {
				shown = fmt.Sprintf("another %s", c)
			}
			w.text = strings.TrimPrefix(v.text+", "+shown, ", ")
			out = append(out, w)
		}
	}
	return out
}

func formEscape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// compare decides every cell on both sides at one time.
func (g *grid) compare(a, b *side, at time.Time) []Change {
	t := &tally{g: g, gained: map[capability]map[cell][]*Rule{}, lost: map[capability]map[cell][]*Rule{}}
	for port := range g.ports {
		was, now := g.conn(a, port, at), g.conn(b, port, at)
		t.add(cell{place{port, TCP}, 0, -1, -1}, was.relayed(), now.relayed())
		for _, scheme := range []Scheme{HTTPS, HTTP} {
			if was.closed(scheme) && now.closed(scheme) {
				continue
			}
			for v := range g.variants {
				for m, method := range g.methods {
					if g.variants[v].ws && method != "GET" {
						continue
					}
					for c := range g.classes {
						x := cell{place{port, scheme}, v, m, c}
						t.add(x, was.request(x), now.request(x))
					}
				}
			}
		}
	}
	return t.changes()
}

// connection is what a side decides about one port before a request, asked in
// the order of the gateway: unseen first, then by what is spoken.
type connection struct {
	g      *grid
	s      *side
	at     time.Time
	port   uint16
	any    Decision
	scheme [HTTP + 1]Decision
}

func (g *grid) conn(s *side, port int, at time.Time) *connection {
	c := &connection{g: g, s: s, at: at, port: g.ports[port]}
	c.any = s.decide(Request{Stage: StageConn, Host: g.host, Port: c.port, Now: at})
	for _, scheme := range []Scheme{HTTPS, HTTP} {
		if c.any.Verdict == Deny {
			c.scheme[scheme] = c.any
			continue
		}
		c.scheme[scheme] = s.decide(Request{Stage: StageConn, Host: g.host, Port: c.port, Scheme: scheme, Now: at})
	}
	return c
}

func (c *connection) closed(s Scheme) bool {
	return c.any.Relay != RelayTCP && c.scheme[s].Verdict == Deny
}

// relayed is what is given when bytes are relayed unopened.
func (c *connection) relayed() granted {
	d, what := c.any, "any protocol"
	switch tls := c.scheme[HTTPS]; {
	case d.Verdict == Deny:
		return granted{d: d}
	case d.Relay == RelayTCP:
	case tls.Verdict == Allow && tls.Relay == RelayPassthrough:
		d, what = tls, "TLS"
	default:
		return granted{d: d}
	}
	g := granted{d: d, caps: map[string]capability{}}
	g.give(CapRelay, what, true)
	g.reach(d)
	return g
}

// request is what is given to one kind of request. One that would travel
// inside a relayed connection is let through with nothing done to it.
func (c *connection) request(x cell) granted {
	d := c.scheme[x.place.scheme]
	if c.any.Relay == RelayTCP {
		d = c.any
	}
	if d.Verdict == Deny {
		return granted{d: d}
	}
	g := granted{d: d, caps: map[string]capability{}}
	if c.any.Relay == RelayTCP || d.Relay == RelayPassthrough {
		g.give(CapAccess, "", true)
		g.unread = true
		return g
	}
	v := &c.g.variants[x.variant]
	g.d = c.s.decide(Request{Stage: StageRequest, Host: c.g.host, Port: c.port, Scheme: x.place.scheme, Method: c.g.methods[x.method],
		Path: c.g.classes[x.class].rep, Query: v.query, Header: v.header, WebSocket: v.ws, Now: c.at})
	if g.d.Verdict == Deny {
		g.caps = nil
		return g
	}
	g.give(CapAccess, "", true)
	g.reach(g.d)
	for _, name := range g.d.Inject {
		g.give(CapSecret, name, true)
	}
	g.injects = len(g.d.Inject) > 0
	g.treat(g.d)
	return g
}

func (g *granted) give(what Capability, detail string, wider bool) {
	g.caps[string(what)+"|"+detail] = capability{what, detail, wider}
}

// reach gives the addresses that may be dialled.
func (g *granted) reach(d Decision) {
	if len(d.Addresses) == 0 {
		g.give(CapPublic, "", true)
		return
	}
	for _, p := range d.Addresses {
		g.give(CapAddress, p.String(), true)
	}
	if d.Metadata {
		g.give(CapMetadata, "", true)
	}
}

// treat gives what the deciding rule lets by besides the request.
func (g *granted) treat(d Decision) {
	r := d.Rule
	if r == nil || d.Reason == ReportMode {
		return
	}
	if len(d.Inject) > 0 {
		if r.Foreign != ForeignBlock {
			g.give(CapForeign, "dropped", true)
		}
		if r.Foreign == ForeignPass {
			g.give(CapForeign, "sent", true)
		}
		if r.NoScrub {
			g.give(CapReflect, "", true)
		}
	}
	if r.OnLeakPass {
		g.give(CapLeak, "", true)
	}
	g.caps["limits"] = capability{CapLimits, r.Limits.text(), false}
}

// text writes limits for people, in the words of the language.
func (l Limits) text() string {
	var out []string
	for _, x := range []struct {
		name string
		n    int64
	}{{"requests_per_minute", l.RequestsPerMinute}, {"bytes_sent_per_day", l.BytesSentPerDay}, {"bytes_received_per_day", l.BytesReceivedPerDay},
		{"connections", l.Connections}, {"max_request", l.MaxRequest}, {"max_response", l.MaxResponse}} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("%s %d", x.name, x.n))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
