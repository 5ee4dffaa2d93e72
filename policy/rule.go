package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// rule is a Rule after it has been checked, ready to be matched.
type rule struct {
	*shape
	host         HostPattern
	line, column int
	rank         int32 // place in the order of files and lines
	written      atomic.Pointer[Rule]
}

// source is the rule in its normal form; what Decision.Rule shows. It is made
// when it is first asked for, and stays the same.
func (r *rule) source() *Rule {
	if have := r.written.Load(); have != nil {
		return have
	}
	made := r.like.placed(r.host.String(), r.line, r.column)
	if r.written.CompareAndSwap(nil, &made) {
		return &made
	}
	return r.written.Load()
}

// pos is where the rule is written.
func (r *rule) pos() Pos { return Pos{File: r.like.Pos.File, Line: r.line, Column: r.column} }

// owner is who a rule stands with.
type owner struct {
	title   string // `sandbox "ci"`, `group "x"` or `org`
	group   string // name of the group; "" for a sandbox and the org
	sandbox string // name of the sandbox; "" for a group and the org
}

// outcome is how far an attempt fits a rule, matcher by matcher.
type outcome struct {
	port, scheme, method, path, query, header, upgrade, body fit
	push                                                     bool // a push that only access = "read" refuses
}

// whole is the fit of the rule: the least of its matchers'.
func (o outcome) whole() fit {
	return min(o.head(), o.body)
}

// head is the fit without the body.
func (o outcome) head() fit {
	return min(o.port, o.scheme, o.method, o.path, o.query, o.header, o.upgrade)
}

// query is a request with what is read from it once for all rules.
type query struct {
	*Request
	path      Path
	ambiguous bool
	pathed    bool // some rule for this host and endpoint has paths
}

// fit matches an attempt whose host is known to be in the rule's pattern.
// A new matcher is one line here.
func (r *rule) fit(q *query) outcome {
	var o outcome
	o.port = r.ends.portFit(q.Stage, q.Port)
	o.scheme = r.schemeFit(q)
	if q.Stage != StageRequest {
		u := r.unseen()
		o.method, o.path, o.query, o.header, o.upgrade, o.body = u, u, u, u, u, u
		return o
	}
	o.query, o.header, o.body = yes, yes, yes
	if r.git != nil {
		r.git.fit(q, &o)
	} else {
		o.method = when(r.methods.has(q.Method))
		o.path = when(r.pathFits(q))
		if len(r.conds) > 0 {
			o.query, o.header = when(r.queryFits(q.Query)), when(r.headersFit(q.Header))
		}
		if r.body != nil {
			o.query = min(o.query, when(r.onlyNamed(q.Query)))
			o.body = when(r.body.fits(q.Body))
		}
	}
	o.upgrade = when(!q.WebSocket || !r.like.NoWebSocket)
	return o
}

// schemeFit matches the scheme. No request is decided by a rule that relays
// bytes.
func (r *rule) schemeFit(q *query) fit {
	if q.Stage == StageRequest && (r.like.Action == ActionTCP || r.like.Action == ActionPassthrough) {
		return no
	}
	return r.ends.schemeFit(q.Stage, q.Port, q.Scheme)
}

// unseen is the fit of what only a request shows.
func (r *rule) unseen() fit {
	if r.git != nil || !r.methods.any || len(r.paths) > 0 || len(r.conds) > 0 || r.body != nil || r.like.NoWebSocket {
		return maybe
	}
	return yes
}

// hasPaths reports whether the rule looks at the path of a request.
func (r *rule) hasPaths() bool { return len(r.paths) > 0 || r.git != nil }

// pathFits matches the path. Where some rule of the host has paths, a path of
// more than one reading fits no allow; encoded_slash lifts that for encoded
// slashes.
func (r *rule) pathFits(q *query) bool {
	if r.like.Action == ActionDeny {
		return len(r.paths) == 0 ||
			slices.ContainsFunc(r.paths, func(g pathGlob) bool { return g.matchAnyReading(q.path) })
	}
	if q.ambiguous && q.pathed && !(q.path.slash && r.like.EncodedSlash) {
		return false
	}
	return len(r.paths) == 0 ||
		slices.ContainsFunc(r.paths, func(g pathGlob) bool { return g.match(q.path) })
}

// expired reports whether the rule is void. Without a clock a rule that ends
// some day has ended.
func (r *rule) expired(now time.Time) bool {
	return !r.like.Expires.IsZero() && (now.IsZero() || !now.Before(r.like.Expires))
}

// beats reports whether the rule is named before another that matches as
// well.
func (r *rule) beats(other *rule) bool {
	switch {
	case other == nil:
		return true
	case r.host != other.host:
		return r.host.narrower(other.host)
	case (len(r.inject) > 0) != (len(other.inject) > 0):
		return len(r.inject) > 0
	}
	return r.rank < other.rank
}

// relay is what is done with a connection that the rule allows.
func (r *rule) relay() Relay {
	switch r.like.Action {
	case ActionTCP:
		return RelayTCP
	case ActionPassthrough:
		return RelayPassthrough
	}
	return RelayIntercept
}

// title names the rule in a problem.
func (r *rule) title() string { return ruleTitle(r.source()) }

func ruleTitle(r *Rule) string {
	host := r.Host
	if r.Action == ActionGit && r.Repo != "" {
		host += "/" + r.Repo
	}
	return fmt.Sprintf("%s %q of %s", r.Action, host, r.Owner)
}

// joinPrefixes returns the union of two lists, allocating only when neither
// holds the other.
func joinPrefixes(a, b []netip.Prefix) []netip.Prefix { return join(a, b) }

func joinNames(a, b []string) []string {
	out := join(a, b)
	if len(out) > max(len(a), len(b)) {
		slices.Sort(out)
	}
	return out
}

func join[T comparable](a, b []T) []T {
	if holds(a, b) {
		return a
	}
	if holds(b, a) {
		return b
	}
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func holds[T comparable](list, part []T) bool {
	for _, x := range part {
		if !slices.Contains(list, x) {
			return false
		}
	}
	return true
}

// splitHostPort takes a port off a host pattern that was written with one.
func splitHostPort(s string) (host, port string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") || strings.IndexByte(s, ':') < i && !strings.HasPrefix(s, "[") {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
