package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sallyport/audit"
	"sallyport/policy"
	"sallyport/policy/policyfile"
)

func watchCommand() *cobra.Command {
	var f tailFlags
	var paths, vars []string
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "A full screen of what is blocked, as it happens",
		Long: `Show what is blocked, with counts, as it happens: of the daemon and of every run.
Enter shows one event with its rule and that rule's line; a shows the policy that
would allow it, and prints it again at the end.`,
		Example: `  sallyport watch
  sallyport watch --sandbox ci --policy policy.d`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.watch(cmd.Context(), watchSuggest(paths, vars)) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.state, "state", "", "state folder of the gateway")
	wordVar(fs, &f.since, "since", sinceHelp)
	wordVar(fs, &f.sandbox, "sandbox", "only of this sandbox, by name or id")
	wordVar(fs, &f.host, "host", "only of hosts that match this glob")
	fs.StringArrayVar(&paths, "policy", nil, "policy that suggestions are made for (repeatable; default: the configured policy.d)")
	varsVar(fs, &vars)
	f.lines = watchHistory
	return cmd
}

// watchHistory is how many events of the past the screen begins with.
const watchHistory = 500

func (f *tailFlags) watch(ctx context.Context, suggest func(*audit.Event) string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return &exit{code: exitFailed, err: errors.New("watch needs a terminal"), hint: "sallyport tail -f --blocked"}
	}
	state, err := stateFolder(f.state)
	if err != nil {
		return err
	}
	filter, err := f.filter()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &watchModel{now: time.Now, suggest: suggest, source: sourceLine, color: useColor(os.Stdout)}
	p := tea.NewProgram(m, tea.WithContext(ctx))
	go feed(audit.Follow(ctx, logFolders(state), filter), func(msg tea.Msg) { p.Send(msg) })
	if _, err := p.Run(); err != nil && !errors.Is(err, tea.ErrInterrupted) {
		return err
	}
	for _, text := range m.printed {
		if err := put("%s\n", strings.TrimRight(text, "\n")); err != nil {
			return err
		}
	}
	return m.err
}

// feedEvery bounds how often the screen is drawn, and feedBatch how much it is
// given at once.
const (
	feedEvery = 100 * time.Millisecond
	feedBatch = 1000
)

// feed hands on events in batches until they end.
func feed(events func(func(*audit.Event, error) bool), send func(tea.Msg)) {
	ch := make(chan *audit.Event, feedBatch)
	var failed error
	go func() {
		defer close(ch)
		for e, err := range events {
			var line *audit.LineError
			switch {
			case err == nil:
				ch <- e
			case errors.As(err, &line):
				ch <- nil
			default:
				failed = err
				return
			}
		}
	}()
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	var batch eventsMsg
	var damaged damagedMsg
	flush := func() {
		if damaged > 0 {
			send(damaged)
			damaged = 0
		}
		if len(batch) > 0 {
			send(batch)
			batch = nil
		}
	}
	for {
		select {
		case e, ok := <-ch:
			if !ok {
				flush()
				if !errors.Is(failed, context.Canceled) {
					send(endedMsg{failed})
				}
				return
			}
			if e == nil {
				damaged++
			} else if batch = append(batch, e); len(batch) >= feedBatch {
				flush()
			}
		case <-tick.C:
			flush()
		}
	}
}

// watchSuggest returns the HCL that would allow what was denied, under the
// policy in paths as it is then, with the values of vars, NAME=VALUE.
func watchSuggest(paths, vars []string) func(e *audit.Event) string {
	return func(e *audit.Event) string {
		b, ok := blockedBy(e)
		if !ok {
			return "# Nothing in a policy allows this: " + audit.Escape(e.Reason, 64) + " is about the attempt itself."
		}
		if len(paths) == 0 {
			p, err := userPaths()
			if err == nil {
				paths, err = configuredPolicy(p)
			}
			if err != nil {
				return "# " + audit.Escape(err.Error(), 500) + "\n# Name the policy with --policy."
			}
		}
		o := policyOptions()
		o.Vars = variables(vars)
		doc, diags := policyfile.Load(paths, o)
		if doc == nil {
			return "# The policy has errors: " + audit.Escape(firstProblem(diags), 500)
		}
		out, err := policy.Suggest(*doc, []policy.Blocked{b}, policy.SuggestOptions{Now: time.Now()})
		switch {
		case err != nil:
			return "# " + audit.Escape(err.Error(), 500)
		case len(out) == 0:
			return "# The policy allows it by now, or has no sandbox " + audit.Escape(b.Sandbox, 100) + "."
		}
		return string(policyfile.Suggested(out[0], ""))
	}
}

// sourceLine is one line of a policy file, "" where it cannot be read.
func sourceLine(file string, line int) string {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	sc := bufio.NewScanner(io.LimitReader(f, 8<<20))
	for n := 1; sc.Scan(); n++ {
		if n == line {
			return strings.TrimRight(sc.Text(), "\r")
		}
	}
	return ""
}
