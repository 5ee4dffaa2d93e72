package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rules returns the least rules for some attempts.
func (p *proposer) rules(list []Blocked, exact bool) []SuggestedRule {
	type end struct {
		host   string
		port   uint16
		scheme Scheme
	}
	requests := map[end][]Blocked{}
	repos := map[string][]Blocked{}
	var out []SuggestedRule
	for _, b := range list {
		repo, _, isGit := gitRequest(b)
		switch {
		case b.Method == "" && b.Port != 0 && b.Port != 443 && b.Port != 80 && b.Scheme != HTTPS && b.Scheme != HTTP,
			b.Reason == NotTLS, b.Reason == NotHTTP:
			out = append(out, suggested(Rule{Action: ActionTCP, Host: b.Host, Ports: []uint16{b.Port}}, b))
		case b.Method == "":
			out = append(out, p.unseen(b))
		case isGit && b.Scheme != HTTP && b.Port == 443:
			repos[b.Host+"/"+repo] = append(repos[b.Host+"/"+repo], b)
		default:
			if b.Scheme == SchemeAny {
				b.Scheme = HTTPS
			}
			e := end{b.Host, b.Port, b.Scheme}
			requests[e] = append(requests[e], b)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(repos)) {
		out = append(out, gitRule(where, repos[where]))
	}
	for _, list := range requests {
		out = append(out, p.requestRules(list, exact)...)
	}
	return out
}

func suggested(r Rule, list ...Blocked) SuggestedRule {
	s := SuggestedRule{Rule: r, attempts: list}
	for _, b := range list {
		s.Count += b.Count
		if s.First.IsZero() || b.First.Before(s.First) {
			s.First = b.First
		}
		if b.Last.After(s.Last) {
			s.Last = b.Last
		}
		if !slices.Contains(s.Reasons, b.Reason) {
			s.Reasons = append(s.Reasons, b.Reason)
		}
	}
	slices.Sort(s.Reasons)
	return s
}

// unseen is the least rule that lets a name be looked up or a connection be
// made when no request was seen.
func (p *proposer) unseen(b Blocked) SuggestedRule {
	r := Rule{Action: ActionAllow, Host: b.Host, Methods: []string{"GET"}, Paths: []string{"/"}, NoWebSocket: true}
	r.at(b.Port, b.Scheme)
	s := suggested(r, b)
	s.Unseen = true
	return s
}

// countLeft tells the rules that were made from no request of the requests that
// there were: whoever reads them must not think that nothing was asked for.
func (p *proposer) countLeft() {
	for i := range p.out.Rules {
		r := &p.out.Rules[i]
		if !r.Unseen {
			continue
		}
		port := r.attempts[0].Port
		for _, l := range p.out.Left {
			if l.Method != "" && l.Host == r.Rule.Host && (port == 0 || l.Port == port) {
				r.Requests += l.Count
			}
		}
	}
}

// Lookup reports whether lookups of a name alone led to the rule.
func (r SuggestedRule) Lookup() bool { return r.Unseen && r.attempts[0].Port == 0 }

// at sets ports and schemes where they are not the usual ones.
func (r *Rule) at(port uint16, s Scheme) {
	plain := s == HTTP || s == SchemeAny && port == 80
	if plain {
		r.Schemes = []Scheme{HTTP}
	}
	if port != 0 && port != 443 && !plain || plain && port != 0 && port != 80 {
		r.Ports = []uint16{port}
	}
}

// gitRequest reads the path of a request of git's smart HTTP protocol.
func gitRequest(b Blocked) (repo string, push, ok bool) {
	for _, call := range []string{"/info/refs", "/git-upload-pack", "/git-receive-pack", "/info/lfs/objects/batch", "/info/lfs/locks", "/info/lfs/locks/verify"} {
		below, found := strings.CutSuffix(b.Path, call)
		if !found {
			continue
		}
		repo = strings.TrimSuffix(strings.TrimPrefix(below, "/"), ".git")
		if _, err := parseGitRepo(repo); err != nil || strings.Contains(repo, "*") {
			return "", false, false
		}
		return repo, call == "/git-receive-pack" || b.Reason == GitPushNotAllowed, true
	}
	return "", false, false
}

func gitRule(where string, list []Blocked) SuggestedRule {
	host, repo, _ := strings.Cut(where, "/")
	r := Rule{Action: ActionGit, Host: host, Repo: repo, Access: "read"}
	for _, b := range list {
		if _, push, _ := gitRequest(b); push {
			r.Access = "write"
		}
	}
	return suggested(r, list...)
}

// requestRules returns rules for requests to one host, port and scheme: one
// for each set of methods that were asked of the same paths.
func (p *proposer) requestRules(list []Blocked, exact bool) []SuggestedRule {
	methods := map[string]map[string]bool{} // by path
	attempts := map[string][]Blocked{}
	for _, b := range list {
		path, why := patternOf(b.Path)
		if why != "" {
			p.leave(b, why)
			continue
		}
		method := b.Method
		if b.WebSocket {
			method = "\x00" // a handshake is a GET that asks for more
		}
		if methods[path] == nil {
			methods[path] = map[string]bool{}
		}
		methods[path][method] = true
		attempts[path] = append(attempts[path], b)
	}
	byMethods := map[string][]string{}
	for path, set := range methods {
		key := strings.Join(slices.Sorted(maps.Keys(set)), " ")
		byMethods[key] = append(byMethods[key], path)
	}
	var out []SuggestedRule
	for _, key := range slices.Sorted(maps.Keys(byMethods)) {
		var of []Blocked
		slices.Sort(byMethods[key])
		for _, path := range byMethods[key] {
			of = append(of, attempts[path]...)
		}
		r := Rule{Action: ActionAllow, Host: list[0].Host, Paths: byMethods[key], NoWebSocket: true}
		if !exact {
			r.Paths = joinPaths(r.Paths)
		}
		for _, m := range strings.Split(key, " ") {
			if m == "\x00" {
				r.NoWebSocket, m = false, "GET"
			}
			if !slices.Contains(r.Methods, m) {
				r.Methods = append(r.Methods, m)
			}
		}
		r.NoWebSocket = r.NoWebSocket && slices.Contains(r.Methods, "GET")
		r.EncodedSlash = slices.ContainsFunc(r.Paths, func(path string) bool { return strings.Contains(path, "%2F") })
		r.at(list[0].Port, list[0].Scheme)
		out = append(out, suggested(r, of...))
	}
	return out
}

// patternOf writes the path of a request as a pattern that holds it alone, or
// says why none does.
func patternOf(raw string) (pattern, why string) {
	p, ambiguous := NormalPath(raw)
	switch {
	case p.asterisk:
		return "", "no path pattern holds OPTIONS *"
	case ambiguous && !p.slash:
		return "", "the path can be read in more than one way"
	case strings.Contains(p.String(), "*") || strings.Contains(strings.ToUpper(raw), "%2A"):
		return "", "the path holds a star, which a pattern cannot write"
	}
	return p.String(), ""
}

// Evidence for a pattern: how many values of one segment were seen.
const (
	enoughNumbers = 3 // when each looks like an identifier
	enoughNames   = 8
)

// joinPaths replaces the segment in which enough paths differ by "*", as long
// as there is one.
func joinPaths(paths []string) []string {
	var segs [][]string
	for _, p := range paths {
		segs = append(segs, strings.Split(strings.Trim(p, "/"), "/"))
	}
	for joined := true; joined; {
		segs, joined = joinOnce(segs)
	}
	out := make([]string, 0, len(segs))
	for _, s := range segs {
		out = append(out, "/"+strings.Join(s, "/"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func joinOnce(paths [][]string) (out [][]string, joined bool) {
	longest := 0
	for _, p := range paths {
		longest = max(longest, len(p))
	}
	for at := longest - 1; at >= 0; at-- {
		values := map[string][]string{}
		key := func(p []string) string {
			rest := slices.Clone(p)
			rest[at] = "*"
			return fmt.Sprintf("%q", rest)
		}
		for _, p := range paths {
			if at < len(p) && p[at] != "*" && p[at] != "" {
				values[key(p)] = append(values[key(p)], p[at])
			}
		}
		for _, k := range slices.Sorted(maps.Keys(values)) {
			if !evidence(values[k]) {
				continue
			}
			for _, p := range paths {
				if at < len(p) && key(p) == k {
					p = slices.Clone(p)
					p[at] = "*"
				}
				if !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, p) }) {
					out = append(out, p)
				}
			}
			return out, true
		}
	}
	return paths, false
}

func evidence(values []string) bool {
	slices.Sort(values)
	values = slices.Compact(values)
	identifiers := !slices.ContainsFunc(values, func(v string) bool { return !strings.ContainsAny(v, "0123456789") && len(v) < 20 })
	return len(values) >= enoughNames || identifiers && len(values) >= enoughNumbers
}
