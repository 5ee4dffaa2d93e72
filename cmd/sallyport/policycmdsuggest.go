package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sallyport/audit"
	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// suggestFlags are the flags of policy suggest.
type suggestFlags struct {
	policyFlags
	state   string
	since   string
	sandbox string
	exact   bool
	group   string
}

func suggestCommand() *cobra.Command {
	var f suggestFlags
	cmd := &cobra.Command{
		Use:   "suggest",
		Short: "Print the least rules that admit what was blocked",
		Long: `Read the audit log and print, for each sandbox, the smallest HCL that admits
what it was refused: never more than the org allows, never what a deny rule
denies, never what was refused to keep a secret where it belongs. Paths become
a pattern only where several were seen that differ in one segment.

Read it as a proposal: that something was asked for does not make it right.`,
		Example: `  sallyport policy suggest --policy policy.d --since 24h --sandbox ci
  sallyport policy suggest --policy policy.d --group learned > policy.d/learned.hcl`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.suggest(os.Stdout) },
	}
	f.add(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.state, "state", "", "state folder of the gateway")
	fs.StringVar(&f.since, "since", "24h", sinceHelp)
	fs.StringVar(&f.sandbox, "sandbox", "", "only for this sandbox")
	fs.BoolVar(&f.exact, "exact", false, "never join paths into a pattern")
	fs.StringVar(&f.group, "group", "", "print a group of this name, which loads beside the policy")
	return cmd
}

func (f *suggestFlags) suggest(w io.Writer) error {
	state, err := stateFolder(f.state)
	if err != nil {
		return err
	}
	filter, err := (&tailFlags{since: f.since}).filter()
	if err != nil {
		return err
	}
	paths, err := f.paths(nil)
	if err != nil {
		return err
	}
	doc, diags := policyfile.Load(paths, f.options())
	if diags.HasErrors() {
		return f.invalid(diags)
	}
	dirs := logFolders(state)
	if !anyLog(dirs) {
		return &exit{code: exitFailed, err: fmt.Errorf("no audit log below %s", state),
			hint: "name the gateway's state folder with --state, as its daemon file does"}
	}
	if f.sandbox != "" {
		var names []string
		for _, s := range doc.Sandboxes {
			names = append(names, s.Name)
		}
		if _, err := chooseSandbox(names, f.sandbox); err != nil {
			return err
		}
	}
	var bad unreadable
	list, err := blockedIn(dirs, filter, &bad)
	if err != nil {
		return err
	}
	if f.sandbox != "" {
		list = slices.DeleteFunc(list, func(b policy.Blocked) bool { return b.Sandbox != f.sandbox })
	}
	if err := f.print(w, *doc, list); err != nil {
		return err
	}
	return bad.failure()
}

// print writes what is suggested for some blocked attempts.
func (f *suggestFlags) print(w io.Writer, doc policy.Document, list []policy.Blocked) error {
	out, err := policy.Suggest(doc, list, policy.SuggestOptions{Exact: f.exact, Now: time.Now()})
	if err != nil {
		return &exit{code: exitFailed, err: err, hint: "sallyport policy validate shows them"}
	}
	others := undeclared(doc, list)
	if len(others) > 0 {
		fmt.Fprintf(os.Stderr, "sallyport: what this policy does not declare was blocked too, and is left out: %s\n", someOf(others))
	}
	if len(out) == 0 && !f.json {
		if len(others) == 0 {
			fmt.Fprintln(os.Stderr, "sallyport: nothing was blocked that the policy does not allow by now")
		}
		return nil
	}
	if len(out) > 1 && f.group != "" {
		return usage("--group: several sandboxes were refused something; choose one with --sandbox")
	}
	for i, s := range out {
		if f.json {
			if err := writeJSON(w, suggestionJSON(s)); err != nil {
				return err
			}
			continue
		}
		text := policyfile.Suggested(s, f.group)
		if i > 0 {
			text = append([]byte("\n"), text...)
		}
		if _, err := io.Copy(w, bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}

// undeclared are the sandboxes of list that doc does not have, sorted and quoted.
func undeclared(doc policy.Document, list []policy.Blocked) []string {
	var names []string
	for _, b := range list {
		name := fmt.Sprintf("sandbox %q", b.Sandbox)
		if b.Sandbox == "" {
			name = "traffic that no sandbox claims"
		}
		if !slices.ContainsFunc(doc.Sandboxes, func(s policy.Sandbox) bool { return s.Name == b.Sandbox }) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// blockedIn reads what was denied, or would have been outside of report mode,
// and tells bad of the lines that are no record.
func blockedIn(dirs []string, filter audit.Filter, bad *unreadable) ([]policy.Blocked, error) {
	var out []policy.Blocked
	for e, err := range audit.Read(context.Background(), dirs, filter) {
		if bad.note(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if b, ok := blockedBy(e); ok {
			out = append(out, b)
		}
	}
	return out, nil
}

// blockedBy reads a denial from its record.
func blockedBy(e *audit.Event) (policy.Blocked, bool) {
	reason := e.Reason
	if e.Would != nil {
		reason = e.Would.Reason
	}
	if e.Phase != audit.PhaseDecision || e.Verdict != policy.Deny.String() && e.Would == nil || e.Sandbox == nil || e.Host == "" || byProbe(e) {
		return policy.Blocked{}, false
	}
	b := policy.Blocked{Sandbox: e.Sandbox.Name, Host: e.Host, Port: e.Port, Reason: policy.Reason(reason), Count: max(e.Count, 1), First: e.Time, Last: e.Time}
	if e.Various() {
		b.Count = 1 // of the others it is not known what they were
	}
	if e.FirstSeen != nil {
		b.First = *e.FirstSeen
	}
	if b.Port == 0 && e.Dst != nil && e.Kind != audit.KindDNS {
		b.Port = e.Dst.Port
	}
	if e.Kind == audit.KindDNS {
		b.Port = 0
	}
	if e.TLS != nil {
		b.Scheme = policy.HTTPS
	}
	if e.HTTP != nil {
		b.Method, b.Path, b.WebSocket = e.HTTP.Method, e.HTTP.Path, e.Kind == audit.KindWS
		b.Scheme = policy.HTTPS
		if e.HTTP.Scheme == "http" {
			b.Scheme = policy.HTTP
		}
	}
	return b, true
}

// jsonSuggestion is a suggestion as programs are told of it.
type jsonSuggestion struct {
	Sandbox string          `json:"sandbox"`
	Rules   []jsonSuggested `json:"rules"`
	Left    []jsonLeft      `json:"left_out,omitempty"`
}

type jsonSuggested struct {
	HCL     string          `json:"hcl"`
	Count   uint64          `json:"count"`
	First   time.Time       `json:"first_seen"`
	Last    time.Time       `json:"last_seen"`
	Reasons []policy.Reason `json:"reasons"`
	Unseen  bool            `json:"request_unseen,omitempty"`
	Left    uint64          `json:"requests_left_out,omitempty"` // of a rule made from no request
}

type jsonLeft struct {
	Host   string        `json:"host"`
	Port   uint16        `json:"port,omitempty"`
	Method string        `json:"method,omitempty"`
	Path   string        `json:"path,omitempty"`
	Reason policy.Reason `json:"reason"`
	Count  uint64        `json:"count"`
	Why    string        `json:"why"`
}

func suggestionJSON(s policy.Suggestion) jsonSuggestion {
	j := jsonSuggestion{Sandbox: s.Sandbox, Rules: []jsonSuggested{}}
	for _, r := range s.Rules {
		j.Rules = append(j.Rules, jsonSuggested{policyfile.RuleText(r.Rule), r.Count, r.First.UTC(), r.Last.UTC(), r.Reasons, r.Unseen && r.Requests == 0, r.Requests})
	}
	for _, l := range s.Left {
		j.Left = append(j.Left, jsonLeft{l.Host, l.Port, l.Method, l.Path, l.Reason, l.Count, l.Why})
	}
	return j
}
