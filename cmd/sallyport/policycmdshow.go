package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sallyport/policy"
)

// showFlags are the flags of policy show.
type showFlags struct {
	policyFlags
	sandbox string
	running bool
	socket  string
}

func showCommand() *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show [PATH...]",
		Short: "Show what each sandbox may do, whoever says so",
		Long: `Show the effective policy of each sandbox as a tree: its own rules, those of
its groups, the denials of the org, and where each secret may go. With --running
it is what the running gateway enforces, whatever the files say by now, with its
generation, its commit, and the live sandboxes that were narrowed.`,
		Example: `  sallyport policy show policy.d
  sallyport policy show --sandbox ci --json policy.d
  sallyport policy show --running`,
		RunE: func(_ *cobra.Command, args []string) error { return f.show(os.Stdout, args) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "only this sandbox")
	cmd.Flags().BoolVar(&f.running, "running", false, "the policy that the running gateway has in force")
	cmd.Flags().StringVar(&f.socket, "socket", "", "control socket of the daemon, with --running")
	return cmd
}

func (f *showFlags) show(w io.Writer, args []string) error {
	if f.running || f.socket != "" {
		if len(args) > 0 || len(f.policy) > 0 {
			return usage("show: either the policy of a running gateway or one that is named")
		}
		return f.showRunning(w)
	}
	b, err := f.bundle(args)
	if err != nil {
		return err
	}
	names, err := f.chosen(b.Set.Sandboxes())
	if err != nil {
		return err
	}
	for _, name := range names {
		if f.json {
			err = writeJSON(w, sandboxJSON(b.Set, name))
		} else {
			err = writeTree(w, sandboxJSON(b.Set, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chosen are the sandboxes that are shown.
func (f *showFlags) chosen(names []string) ([]string, error) {
	if f.sandbox == "" {
		return names, nil
	}
	name, err := chooseSandbox(names, f.sandbox)
	return []string{name}, err
}

// writeTree writes the effective policy of one sandbox.
func writeTree(w io.Writer, sb jsonSandbox) error {
	var b strings.Builder
	fmt.Fprintf(&b, "sandbox %q  %s\n", sb.Sandbox, posText(sb.File, sb.Line))
	for _, line := range sb.Settings {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	tab := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, owner := range owners(sb.Rules) {
		fmt.Fprintf(tab, "  %s\n", owner)
		for _, r := range sb.Rules {
			if r.Owner == owner {
				fmt.Fprintf(tab, "    %s\t%s\t%s\n", r.Action, strings.Join(r.Words, "  "), posText(r.File, r.Line))
			}
		}
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, x := range sb.Secrets {
		fmt.Fprintf(&b, "  secret %s may go to %s\n", x.Name, strings.Join(x.Hosts, ", "))
	}
	if len(sb.Rules) == 0 {
		b.WriteString("  nothing is allowed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func posText(file string, line int) string { return policy.Pos{File: file, Line: line}.String() }

// owners are those whose rules bind a sandbox, in the order of their rules.
func owners(rules []jsonShown) []string {
	var out []string
	seen := map[string]bool{}
	for _, r := range rules {
		if !seen[r.Owner] {
			seen[r.Owner] = true
			out = append(out, r.Owner)
		}
	}
	return out
}

// settingsOf are what a sandbox says besides rules.
func settingsOf(sb *policy.Sandbox) []string {
	var out []string
	if sb.Mode == policy.Report {
		out = append(out, "mode report: what is denied is let through and recorded")
	}
	var match []string
	for _, c := range sb.Match.CIDRs {
		match = append(match, c.String())
	}
	match = append(append(match, sb.Match.Interfaces...), sb.Match.MACs...)
	if len(match) > 0 {
		out = append(out, "match "+strings.Join(match, " "))
	}
	if sb.IPv6 {
		out = append(out, "ipv6")
	}
	if l := limitWords(sb.Limits); l != "" {
		out = append(out, "limits "+l)
	}
	return out
}

func limitWords(l policy.Limits) string {
	var out []string
	for _, x := range []struct {
		name string
		n    int64
	}{{"requests_per_minute", l.RequestsPerMinute}, {"bytes_sent_per_day", l.BytesSentPerDay}, {"bytes_received_per_day", l.BytesReceivedPerDay},
		{"connections", l.Connections}, {"max_request", l.MaxRequest}, {"max_response", l.MaxResponse}} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("%s=%d", x.name, x.n))
		}
	}
	return strings.Join(out, " ")
}

// ruleWords say what a rule is about, in the order in which it is matched.
func ruleWords(r *policy.Rule) []string {
	target := r.Host
	if r.Action == policy.ActionGit {
		target += "/" + r.Repo
	}
	out := []string{target}
	var ports []string
	for _, p := range r.Ports {
		ports = append(ports, strconv.Itoa(int(p)))
	}
	if len(ports) > 0 {
		out = append(out, "port "+strings.Join(ports, ","))
	}
	for _, s := range r.Schemes {
		if s == policy.HTTP {
			out = append(out, "plain HTTP too")
		}
	}
	if r.Access != "" {
		out = append(out, r.Access)
	}
	out = append(out, r.Methods...)
	out = append(out, r.Paths...)
	out = append(append(out, conditionWords("query", r.Query)...), conditionWords("header", r.Headers)...)
	out = append(out, bodyWords(r)...)
	for _, a := range r.Addresses {
		out = append(out, "address "+a.String())
	}
	for _, ref := range r.Inject {
		out = append(out, "+"+ref.Name)
	}
	if !r.Expires.IsZero() {
		out = append(out, "until "+r.Expires.UTC().Format("2006-01-02T15:04Z"))
	}
	if l := limitWords(r.Limits); l != "" {
		out = append(out, l)
	}
	return out
}

func conditionWords(kind string, asks map[string][]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		out = append(out, fmt.Sprintf("%s %s=%s", kind, name, strings.Join(asks[name], "|")))
	}
	return out
}

// bodyWords say what a rule asks of the body.
func bodyWords(r *policy.Rule) []string {
	var out []string
	if g := r.GraphQL; g != nil {
		out = append(out, "GraphQL "+strings.Join(g.Operations, "|"))
		if len(g.Fields) > 0 {
			out = append(out, "fields "+strings.Join(g.Fields, "|"))
		}
	}
	if j := r.JSONRPC; j != nil {
		out = append(out, "JSON-RPC "+strings.Join(j.Methods, "|"))
		if len(j.Tools) > 0 {
			out = append(out, "tools "+strings.Join(j.Tools, "|"))
		}
		if j.Responses {
			out = append(out, "responses")
		}
	}
	return out
}

// secretsOf are the secrets that some rule of a sandbox injects.
func secretsOf(s *policy.Set, sandbox string) []*policy.Secret {
	used := map[string]bool{}
	for _, r := range s.RulesOf(sandbox) {
		for _, ref := range r.Inject {
			used[ref.Name] = true
		}
	}
	var out []*policy.Secret
	for _, x := range s.Secrets() {
		if used[x.Name] {
			out = append(out, x)
		}
	}
	return out
}

// jsonSandbox is a sandbox's effective policy as programs are told of it.
type jsonSandbox struct {
	Sandbox  string            `json:"sandbox"`
	File     string            `json:"file"`
	Line     int               `json:"line"`
	Settings []string          `json:"settings,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Rules    []jsonShown       `json:"rules"`
	Secrets  []jsonSecret      `json:"secrets,omitempty"`
}

type jsonShown struct {
	Owner  string   `json:"owner"`
	Action string   `json:"action"`
	Words  []string `json:"words"`
	File   string   `json:"file"`
	Line   int      `json:"line"`
	Ticket string   `json:"ticket,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

type jsonSecret struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
}

func sandboxJSON(s *policy.Set, name string) jsonSandbox {
	sb := s.Sandbox(name)
	j := jsonSandbox{Sandbox: name, File: sb.Pos.File, Line: sb.Pos.Line, Settings: settingsOf(sb), Labels: sb.Labels, Rules: []jsonShown{}}
	for _, r := range s.RulesOf(name) {
		j.Rules = append(j.Rules, jsonShown{r.Owner, r.Action.String(), ruleWords(r), r.Pos.File, r.Pos.Line, r.Ticket, r.Reason})
	}
	for _, x := range secretsOf(s, name) {
		j.Secrets = append(j.Secrets, jsonSecret{x.Name, x.Hosts})
	}
	return j
}
