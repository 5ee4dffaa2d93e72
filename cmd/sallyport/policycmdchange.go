package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// jsonChange is one statement of a plan as programs are told of it.
type jsonChange struct {
	Sandboxes []string    `json:"sandboxes,omitempty"`
	Org       bool        `json:"org,omitempty"` // of the ceiling
	Change    string      `json:"change"`        // gains, loses or changes
	Widening  bool        `json:"widening"`
	What      string      `json:"what"`
	Detail    string      `json:"detail,omitempty"`
	Hosts     []string    `json:"hosts,omitempty"`
	NotHosts  []string    `json:"except_hosts,omitempty"`
	Ports     string      `json:"ports,omitempty"`
	Scheme    string      `json:"scheme,omitempty"`
	Methods   string      `json:"methods,omitempty"`
	Paths     []string    `json:"paths,omitempty"`
	With      string      `json:"with,omitempty"`
	Without   []string    `json:"without,omitempty"`
	From      string      `json:"from,omitempty"`
	Until     string      `json:"until,omitempty"`
	Git       string      `json:"git,omitempty"` // repositories, when git rules alone decide
	Read      bool        `json:"git_read,omitempty"`
	Push      bool        `json:"git_push,omitempty"`
	Rules     []*jsonRule `json:"rules,omitempty"`
	Text      string      `json:"text"`
}

func changeJSON(c policy.Change) jsonChange {
	j := jsonChange{Sandboxes: c.Sandboxes, Org: c.Org(), Widening: c.Widening, What: string(c.What), Detail: c.Detail,
		With: c.Variant, Without: c.Without, Paths: pathTexts(c), Change: "loses"}
	switch {
	case c.What == policy.CapLimits || c.What == policy.CapSetting:
		j.Change = "changes"
	case c.Gains:
		j.Change = "gains"
	}
	for _, p := range c.Hosts.In {
		j.Hosts = append(j.Hosts, p.String())
	}
	for _, p := range c.Hosts.Except {
		j.NotHosts = append(j.NotHosts, p.String())
	}
	if len(j.Hosts) > 0 {
		j.Ports, j.Scheme = portText(c.Ports), schemeText(c)
		if c.What != policy.CapRelay && c.Scheme != policy.TCP {
			j.Methods = methodText(c.Methods)
		}
	}
	j.From, j.Until = timeText(c.From), timeText(c.Until)
	if j.Git = gitText(c); j.Git != "" {
		j.Read, j.Push = gitCalls(c.Paths)
	}
	for _, r := range c.Rules {
		j.Rules = append(j.Rules, ruleJSON(r))
	}
	if c.Pos.File != "" {
		j.Rules = append(j.Rules, &jsonRule{File: c.Pos.File, Line: c.Pos.Line})
	}
	return j
}

// collapse joins the statements of one host and time that differ in the paths
// alone and, where git rules alone decide, in whatever git's protocol has.
func collapse(list []jsonChange) []jsonChange {
	at := map[string]int{}
	var out []jsonChange
	for _, c := range list {
		x := c
		x.Paths, x.Rules = nil, nil
		if c.Git != "" {
			x.Methods, x.With, x.Without, x.Read, x.Push = "", "", nil, false, false
			c.Methods, c.With, c.Without, c.Paths = "", "", nil, nil
		}
		key := fmt.Sprintf("%+v", x)
		i, ok := at[key]
		if !ok || len(c.Hosts) == 0 {
			at[key] = len(out)
			out = append(out, c)
			continue
		}
		out[i].Paths = append(out[i].Paths, c.Paths...)
		out[i].Read, out[i].Push = out[i].Read || c.Read, out[i].Push || c.Push
		for _, r := range c.Rules {
			if !slices.ContainsFunc(out[i].Rules, func(have *jsonRule) bool { return *have == *r }) {
				out[i].Rules = append(out[i].Rules, r)
			}
		}
	}
	for i := range out {
		out[i].Text = out[i].sentence()
	}
	return out
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func pathTexts(c policy.Change) []string {
	if c.Form != "" {
		return []string{"(" + c.Form + ")"}
	}
	var out []string
	for _, p := range c.Paths {
		text := p.Glob
		if len(p.Except) > 0 {
			text += " except " + strings.Join(p.Except, ", ")
		}
		out = append(out, text)
	}
	return out
}

// gitText names what a change is about when git rules alone decide it: the
// many paths of git's protocol say less.
func gitText(c policy.Change) string {
	if len(c.Rules) == 0 || len(c.Paths) == 0 || c.Form != "" {
		return ""
	}
	var repos []string
	for _, r := range c.Rules {
		if r.Action != policy.ActionGit {
			return ""
		}
		if !slices.Contains(repos, r.Repo) {
			repos = append(repos, r.Repo)
		}
	}
	return strings.Join(repos, ", ")
}

// gitCalls says which of git's calls some paths are.
func gitCalls(paths []policy.PathSet) (read, push bool) {
	for _, p := range paths {
		read = read || strings.HasSuffix(p.Glob, "/git-upload-pack")
		push = push || strings.HasSuffix(p.Glob, "/git-receive-pack")
	}
	return read, push
}

// decodeStrict reads one JSON value whose every field is known.
func decodeStrict(r io.Reader, out any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	return dec.Decode(out)
}

// diagnosticLines are diagnostics as the control socket answers them.
func diagnosticLines(diags *policyfile.Diagnostics) []json.RawMessage {
	var b bytes.Buffer
	if err := diags.WriteJSON(&b); err != nil {
		return nil
	}
	var out []json.RawMessage
	for line := range bytes.Lines(b.Bytes()) {
		out = append(out, json.RawMessage(bytes.TrimSpace(line)))
	}
	return out
}
