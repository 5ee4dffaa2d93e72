package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

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
		if e := r.like.Expires; !e.IsZero() && e.After(d.now) {
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
		Path: c.g.classes[x.class].rep, Query: v.query, Header: v.header, WebSocket: v.ws, Body: v.body, Now: c.at})
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
