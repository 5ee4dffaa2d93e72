package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// Exit codes of policy plan, which are results: its errors exit with exitFailed.
const (
	exitChanges   = 2
	exitWidenings = 3
)

// planFlags are the flags of policy plan.
type planFlags struct {
	policyFlags
	against string
}

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan --against OLD|SOCKET [NEW...]",
		Short: "Say what every sandbox gains and loses by a change of policy",
		Long: `Compare two policies by what they decide, and not by their text: for every
sandbox, and for the org's ceiling, what it gains and what it loses, each with
the rule that says so. What lets more out, or out with less care, is marked
WIDENS. OLD is a file or a folder; or the control socket of a running gateway,
which then also counts the live connections that the change would cut.

It exits with 0 when nothing changes, with 2 when something does, and with 3
when something widens. Every error exits with 1, also one of usage.`,
		Example: `  git worktree add /tmp/base main && sallyport policy plan --against /tmp/base/policy.d policy.d
  sallyport policy plan --against /run/sallyport/control.sock policy.d`,
		RunE: func(_ *cobra.Command, args []string) error { return f.plan(args) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.against, "against", "", "the policy that is in force: a file, a folder or a control socket")
	return cmd
}

// plan is a comparison, as the control socket answers it too.
type plan struct {
	Changes    []jsonChange `json:"changes"`
	Widenings  int          `json:"widenings"`
	Generation uint64       `json:"generation,omitempty"` // of a running gateway
	SHA256     string       `json:"sha256,omitempty"`     // likewise
	Live       *planLive    `json:"live,omitempty"`
}

// planLive is what is open in a running gateway.
type planLive struct {
	Open int            `json:"open"`
	Cut  map[string]int `json:"cut"` // by sandbox
}

func (f *planFlags) plan(args []string) error {
	if f.against == "" {
		return &exit{code: exitFailed, err: errors.New("plan: nothing to compare with"), hint: "name the policy in force with --against DIR, or a running gateway with --against SOCKET"}
	}
	paths, err := f.paths(args)
	if err == nil && f.against == policyfile.Stdin {
		if f.stdin != nil {
			return usage("plan: standard input is one policy, and cannot be compared with itself")
		}
		err = f.readStdin([]string{f.against})
	}
	if err != nil {
		return err
	}
	next, diags := policyfile.LoadSet(paths, 2, f.options())
	if diags.HasErrors() {
		return f.invalid(diags)
	}
	var p plan
	if info, err := os.Stat(f.against); err == nil && info.Mode()&os.ModeSocket != 0 {
		if p, err = f.ask(paths); err != nil {
			return err
		}
	} else if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(f.against, ".sock") {
		return &exit{code: exitFailed, err: fmt.Errorf("no daemon listens on %s: %w", f.against, fs.ErrNotExist), hint: "is `sallyport serve` running? its socket is named in the daemon file, control"}
	} else {
		old, diags := policyfile.LoadSet([]string{f.against}, 1, f.options())
		if diags.HasErrors() {
			return f.invalid(diags)
		}
		p = planOf(old, next)
	}
	if err := f.report(os.Stdout, p); err != nil {
		return err
	}
	switch {
	case p.Widenings > 0:
		return &exit{code: exitWidenings}
	case len(p.Changes) > 0:
		return &exit{code: exitChanges}
	}
	return nil
}

// ask has a running gateway compare. It gets the text of the files.
func (f *planFlags) ask(paths []string) (plan, error) {
	files, diags := policyfile.Contents(paths, f.options())
	if diags.HasErrors() {
		return plan{}, f.invalid(diags)
	}
	in := apiPlan{Files: map[string]string{}}
	for name, data := range files {
		in.Files[name] = string(data)
	}
	var out plan
	c := controlFlags{socket: f.against, jsonDiagnostics: f.json}
	return out, c.call(http.MethodPost, "/v1/policy/plan", in, &out)
}

func planOf(old, next *policy.Set) plan {
	changes := policy.Diff(old, next, time.Now())
	all := make([]jsonChange, 0, len(changes))
	for _, c := range changes {
		all = append(all, changeJSON(c))
	}
	p := plan{Changes: collapse(all)}
	for _, c := range p.Changes {
		if c.Widening {
			p.Widenings++
		}
	}
	return p
}

// report prints a plan.
func (f *planFlags) report(w io.Writer, p plan) error {
	if f.json {
		for _, c := range p.Changes {
			if err := writeJSON(w, c); err != nil {
				return err
			}
		}
		sum := p
		sum.Changes = nil
		return writeJSON(w, struct {
			plan
			Changes int `json:"changes"`
		}{sum, len(p.Changes)})
	}
	_, err := io.WriteString(w, p.text())
	return err
}

func (p plan) text() string {
	var b strings.Builder
	last := ""
	for _, c := range p.Changes {
		if who := c.who(); who != last {
			b.WriteString(who + "\n")
			last = who
		}
		b.WriteString(c.line() + "\n")
	}
	switch {
	case len(p.Changes) == 0:
		b.WriteString("no change\n")
	default:
		fmt.Fprintf(&b, "%s, %s\n", counted(len(p.Changes), "change"), counted(p.Widenings, "widening"))
	}
	if p.Live != nil {
		total := 0
		for _, n := range p.Live.Cut {
			total += n
		}
		fmt.Fprintf(&b, "generation %d is in force; %d of %s would be cut\n", p.Generation, total, counted(p.Live.Open, "live connection"))
		for _, name := range slices.Sorted(maps.Keys(p.Live.Cut)) {
			fmt.Fprintf(&b, "  %d of sandbox %q\n", p.Live.Cut[name], name)
		}
	}
	return b.String()
}

// apiPlan asks the daemon for a comparison with a new policy.
type apiPlan struct {
	Files map[string]string `json:"files"` // text by name
}

// maxPlan is the size of a call that brings a policy, in bytes.
const maxPlan = 2 * policyfile.MaxBytes

// comparePolicy answers a call that brings a policy with what would change.
func (c *control) comparePolicy(w http.ResponseWriter, r *http.Request) {
	var in apiPlan
	if err := decodeStrict(http.MaxBytesReader(w, r.Body, maxPlan), &in); err != nil {
		respond(w, http.StatusBadRequest, apiError{Error: err.Error()})
		return
	}
	p, refused := c.planWith(in.Files)
	if refused != nil {
		respond(w, http.StatusUnprocessableEntity, *refused)
		return
	}
	respond(w, http.StatusOK, p)
}

// planWith compares what is in force with a policy that was brought.
func (c *control) planWith(texts map[string]string) (plan, *apiError) {
	files := map[string][]byte{}
	for name, text := range texts {
		files[name] = []byte(text)
	}
	o := policyOptions()
	o.Vars = c.d.loader.vars
	next, diags := policyfile.ParseSet(files, 0, o)
	if diags.HasErrors() {
		return plan{}, &apiError{Error: "the policy has errors; what was in force stays", Diagnostics: diagnosticLines(diags)}
	}
	old := c.d.gateway.Policy()
	if old == nil {
		old = policy.Empty(0)
	}
	p := planOf(old, next)
	cut, open := c.d.gateway.WouldCut(next)
	p.Generation, p.SHA256, p.Live = old.Generation(), old.SHA256(), &planLive{Open: open, Cut: cut}
	return p, nil
}
