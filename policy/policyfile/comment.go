package policyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// CommentProblems reports rules that allow more than the comment above them,
// or behind their first line, says. Every problem is a warning.
func (b *Bundle) CommentProblems() []policy.Problem {
	comments := map[string]map[int]string{}
	for name, f := range b.files {
		comments[name] = commentsOf(name, f.data)
	}
	seen := map[policy.Pos]bool{}
	var out []policy.Problem
	for _, r := range b.Set.AllRules() {
		if r.Action == policy.ActionDeny || seen[r.Pos] {
			continue
		}
		seen[r.Pos] = true
		out = append(out, promised(comments[r.Pos.File][r.Pos.Line], r)...)
	}
	return out
}

// commentsOf returns, by line, the comment that belongs to a block whose
// header is on that line.
func commentsOf(name string, data []byte) map[int]string {
	tokens, _ := hclsyntax.LexConfig(data, name, hcl.InitialPos) // it was parsed already
	own, trailing, code := map[int]string{}, map[int]string{}, map[int]bool{}
	for _, t := range tokens {
		line := t.Range.Start.Line
		if t.Type != hclsyntax.TokenComment {
			code[line] = code[line] || t.Type != hclsyntax.TokenNewline && t.Type != hclsyntax.TokenEOF
			continue
		}
		if text := strings.TrimSpace(strings.Trim(string(t.Bytes), "#/* \t\r\n")); code[line] {
			trailing[line] = text
		} else {
			own[line] = text
		}
	}
	out := map[int]string{}
	for line := range code {
		if !code[line] {
			continue
		}
		var parts []string
		for at := line - 1; own[at] != ""; at-- {
			parts = append(parts, own[at])
		}
		slices.Reverse(parts)
		if t := trailing[line]; t != "" {
			parts = append(parts, t)
		}
		if len(parts) > 0 {
			out[line] = strings.Join(parts, " ")
		}
	}
	return out
}

var (
	saysRead      = regexp.MustCompile(`(?i)\bread[- ]?only\b|\bonly (for )?read|\breading only\b|\bfor reading\b|\bno (writes?|push|pushing)\b`)
	saysMethods   = regexp.MustCompile(`\b(GET|HEAD|POST|PUT|PATCH|DELETE)(?:(?:,| and| or|/) ?(GET|HEAD|POST|PUT|PATCH|DELETE))* only\b|\bonly (?:GET|HEAD|POST|PUT|PATCH|DELETE)\b`)
	saysMethod    = regexp.MustCompile(`GET|HEAD|POST|PUT|PATCH|DELETE`)
	saysUntil     = regexp.MustCompile(`(?i)\b(?:until|till|expires?(?: on)?)\s+(\d{4}-\d{2}-\d{2})\b`)
	saysPath      = regexp.MustCompile(`(?i)\bonly (?:the )?(?:paths? )?(/[A-Za-z0-9][^\s,;)]*)`)
	saysNoUpgrade = regexp.MustCompile(`(?i)\bno websockets?\b`)
)

// promised compares a rule with what its comment says of it.
func promised(comment string, r *policy.Rule) []policy.Problem {
	if comment == "" {
		return nil
	}
	var out []policy.Problem
	warn := func(what, hint string) {
		out = append(out, policy.Problem{Pos: r.Pos, Severity: policy.Warning, Hint: hint,
			Summary: fmt.Sprintf("%s: allows more than its comment says: %s", r.Title(), what)})
	}
	if saysRead.MatchString(comment) && writes(r) {
		warn("the comment says read, the rule lets writes through", `add access = "read"`)
	}
	if m := saysMethods.FindString(comment); m != "" && r.Action == policy.ActionAllow {
		said := saysMethod.FindAllString(m, -1)
		if slices.ContainsFunc(methodsOf(r), func(x string) bool { return !slices.Contains(said, x) }) {
			warn("the comment says "+m, fmt.Sprintf(`set methods = ["%s"]`, strings.Join(said, `", "`)))
		}
	}
	if m := saysUntil.FindStringSubmatch(comment); m != nil {
		day, err := time.Parse(time.DateOnly, m[1])
		if err == nil && (r.Expires.IsZero() || r.Expires.After(day.AddDate(0, 0, 1))) {
			warn("the comment says until "+m[1], fmt.Sprintf("set expires = %q", m[1]))
		}
	}
	if m := saysPath.FindStringSubmatch(comment); m != nil && r.Action == policy.ActionAllow && len(r.Paths) == 0 {
		warn("the comment says only "+m[1]+", the rule has no paths", fmt.Sprintf("set paths = [%q]", strings.TrimRight(m[1], ".")))
	}
	if saysNoUpgrade.MatchString(comment) && r.Action == policy.ActionAllow && !r.NoWebSocket {
		warn("the comment says no WebSocket", "set websocket = false")
	}
	return out
}

// methodsOf returns the methods that an allow rule lets through; "any other"
// stands for all that it does not name.
func methodsOf(r *policy.Rule) []string {
	switch {
	case r.Access == "read":
		return []string{"GET", "HEAD", "OPTIONS"}
	case len(r.Methods) > 0:
		return r.Methods
	case r.GraphQL != nil || r.JSONRPC != nil:
		return []string{"POST"}
	}
	return []string{"any other"}
}

// writes says whether a rule lets something through that changes what it is
// sent to.
func writes(r *policy.Rule) bool {
	switch {
	case r.GraphQL != nil:
		return slices.Contains(r.GraphQL.Operations, "mutation")
	case r.JSONRPC != nil:
		return false // which methods write is not known
	}
	switch r.Action {
	case policy.ActionAllow:
		return slices.ContainsFunc(methodsOf(r), func(m string) bool { return !slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, m) })
	case policy.ActionGit:
		return r.Access == "write"
	}
	return false
}
