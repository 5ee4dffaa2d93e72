package policy

import (
	"errors"
	"strings"
)

// gitRepo is the repositories of one git rule on its host, over smart HTTP
// (git's gitprotocol-http) and Git LFS.
type gitRepo struct {
	segs  []globSegment // owner and repository, without ".git"
	write bool
}

// parseGitRepo reads "owner/repo"; "*" stands for one whole segment.
func parseGitRepo(s string) (*gitRepo, error) {
	parts := strings.Split(strings.TrimSuffix(s, ".git"), "/")
	if len(parts) < 2 {
		return nil, errors.New(`a git rule names "host/owner/repo"`)
	}
	r := &gitRepo{}
	for _, part := range parts {
		switch {
		case part == "*":
			r.segs = append(r.segs, globSegment{any: true})
		case strings.Contains(part, "*"):
			return nil, errors.New(`a star is one whole segment of "host/owner/repo"`)
		case part == "" || part == "." || part == ".." || strings.ContainsAny(part, "%\\;?# "):
			return nil, errors.New(`a segment of "host/owner/repo" is empty or has a character that no repository has`)
		default:
			r.segs = append(r.segs, globSegment{text: part})
		}
	}
	return r, nil
}

// fit matches the method, path and query of a request. A push that only read
// access refuses fits nothing, and push says so.
func (g *gitRepo) fit(q *query, o *outcome) {
	o.method, o.path, o.query = when(q.Method == "GET" || q.Method == "POST"), no, no
	if q.ambiguous || q.path.asterisk {
		return
	}
	service, ok := g.below(q.path)
	if !ok {
		return
	}
	call, known := gitCallOf(service, q.Query)
	if !known {
		return
	}
	o.path = yes
	o.query = when(!call.badQuery)
	o.method = when(q.Method == call.method || call.method == "" && (q.Method == "GET" || q.Method == "POST"))
	if push := call.push || call.method == "" && q.Method != "GET"; push && !g.write && o.method == yes {
		o.method, o.push = no, true
	}
}

// below returns what follows the repository in a path that names it.
func (g *gitRepo) below(p Path) (rest string, ok bool) {
	w := p.walk(false, false)
	for i, want := range g.segs {
		if !w.more {
			return "", false
		}
		seg := w.next()
		if i == len(g.segs)-1 {
			seg = strings.TrimSuffix(seg, ".git")
			if seg == "" {
				return "", false
			}
		}
		if !want.any && !sameSegment(seg, want.text) {
			return "", false
		}
	}
	return w.rest, w.more
}

// gitCall is one request of the protocol.
type gitCall struct {
	method   string // "": GET reads, POST writes
	push     bool   // it changes the repository whatever the method
	badQuery bool   // git does not ask this with such a query
}

// gitCallOf returns what is asked below a repository. Only what git and
// git-lfs ask is known, byte for byte: an escape in it is not theirs.
func gitCallOf(path, query string) (call gitCall, known bool) {
	switch path {
	case "info/refs":
		push := query == "service=git-receive-pack"
		return gitCall{method: "GET", push: push, badQuery: !push && query != "service=git-upload-pack"}, true
	case "git-upload-pack":
		return gitCall{method: "POST", badQuery: query != ""}, true
	case "git-receive-pack":
		return gitCall{method: "POST", push: true, badQuery: query != ""}, true
	case "info/lfs/objects/batch": // its body says whether it is a download
		return gitCall{method: "POST", badQuery: query != ""}, true
	case "info/lfs/locks", "info/lfs/locks/verify":
		return gitCall{}, true
	}
	if lock, ok := strings.CutPrefix(path, "info/lfs/locks/"); ok {
		id, found := strings.CutSuffix(lock, "/unlock")
		return gitCall{method: "POST", push: true}, found && id != "" && !strings.Contains(id, "/")
	}
	return gitCall{}, false
}

// covers reports whether every repository and call of other is the rule's.
func (g *gitRepo) covers(other *gitRepo) bool {
	if len(g.segs) != len(other.segs) || other.write && !g.write {
		return false
	}
	for i, seg := range g.segs {
		if o := other.segs[i]; !seg.any && (o.any || o.text != seg.text) {
			return false
		}
	}
	return true
}

// globs are the paths that the rule can allow, for comparison with an allow
// rule's: everything below the repository with and without ".git".
func (g *gitRepo) globs() []pathGlob {
	plain := pathGlob{segs: append([]globSegment(nil), g.segs...), deep: true}
	last := g.segs[len(g.segs)-1]
	if last.any {
		return []pathGlob{plain}
	}
	dotted := pathGlob{segs: append([]globSegment(nil), g.segs...), deep: true}
	dotted.segs[len(g.segs)-1].text += ".git"
	return []pathGlob{plain, dotted}
}

// String returns the normal form of "owner/repo".
func (g *gitRepo) String() string {
	parts := make([]string, len(g.segs))
	for i, seg := range g.segs {
		parts[i] = seg.text
		if seg.any {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}
