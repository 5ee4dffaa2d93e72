package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sallyport/audit"
)

// tailFlags are the flags of tail.
type tailFlags struct {
	state   string
	follow  bool
	lines   int
	blocked bool
	alerts  bool
	since   string
	sandbox string
	host    string
	reason  string
	kind    string
	verdict string
	output  string
	json    bool
}

func tailCommand() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show what was allowed and blocked, from the log and as it happens",
		Long: `Show the audit log: that of the daemon and those of every run, merged by time.
It reads the files, so it works with and without a running gateway; with -f it
goes on with what comes, without a gap.

Times are UTC. Lines have the time of day; the day stands on a line before them
where it is not that of the line before, or not today.`,
		Example: `  sallyport tail -f --blocked
  sallyport tail --since 1h --sandbox ci --host '*.example.com'
  sallyport tail -n 0 -o json | jq .`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.oneForm(cmd); err != nil {
				return err
			}
			return f.tail()
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.state, "state", "", "state folder of the gateway")
	fs.BoolVarP(&f.follow, "follow", "f", false, "go on with what comes")
	fs.IntVarP(&f.lines, "lines", "n", 20, "how many of the newest events (0: all)")
	fs.BoolVar(&f.blocked, "blocked", false, "only what was denied")
	fs.BoolVar(&f.alerts, "alerts", false, "only what alerts")
	wordVar(fs, &f.since, "since", sinceHelp)
	wordVar(fs, &f.sandbox, "sandbox", "only of this sandbox, by name or id")
	wordVar(fs, &f.host, "host", "only of hosts that match this glob")
	wordVar(fs, &f.reason, "reason", "only with this reason, or this class of error")
	wordVar(fs, &f.kind, "kind", "only of this kind: dns, conn, packet, tls, http, ws, …")
	wordVar(fs, &f.verdict, "verdict", "only what was decided so: allow or deny")
	formVar(fs, &f.output, audit.FormatCompact)
	fs.BoolVar(&f.json, "json", false, "the same as -o json")
	return cmd
}

// oneForm refuses two forms of output at once.
func (f *tailFlags) oneForm(cmd *cobra.Command) error {
	if f.json && cmd.Flags().Changed("output") && f.output != string(audit.FormatJSON) {
		return usage("-o %s and --json exclude one another", f.output)
	}
	return nil
}

// nothingMatches says on standard error that a filter has found nothing, so that
// no output is not taken for a failure.
func nothingMatches() { fmt.Fprintln(os.Stderr, "sallyport: nothing matches") }

func (f *tailFlags) tail() error {
	state, err := stateFolder(f.state)
	if err != nil {
		return err
	}
	filter, err := f.filter()
	if err != nil {
		return err
	}
	out, err := newExporter(f.output, f.json)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	dirs := logFolders(state)
	read := audit.Read
	if f.follow {
		read = audit.Follow
	} else if !anyLog(dirs) {
		return noLog(state)
	}
	found, bad, days := false, unreadable{}, newDayLines(f.output, f.json, time.Now())
	for e, err := range read(ctx, dirs, filter) {
		if errors.Is(err, context.Canceled) {
			break
		}
		if bad.note(err) {
			continue
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		found = true
		if line := days.before(e); line != "" {
			if err := put("%s", line); err != nil {
				return pipeClosed(err)
			}
		}
		if err := out.Write(e); err != nil {
			return pipeClosed(err)
		}
		if f.follow {
			if err := out.Flush(); err != nil {
				return pipeClosed(err)
			}
		}
	}
	if !found && !f.follow {
		nothingMatches()
	}
	if err := out.Flush(); err != nil {
		return pipeClosed(err)
	}
	return bad.failure()
}

// noLog is the error of a state folder without a log that can be read.
func noLog(state string) error {
	if _, err := os.ReadDir(state); errors.Is(err, os.ErrPermission) {
		return &exit{code: exitFailed, err: fmt.Errorf("audit log below %s: permission denied", state), hint: "it is its owner's alone: be that user, or root"}
	}
	return &exit{code: exitFailed, err: fmt.Errorf("no audit log below %s", state),
		hint: "name the gateway's state folder with --state, as its daemon file does"}
}

// pipeClosed forgives a reader that has seen enough.
func pipeClosed(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// logFolders are the places of logs below a state folder: the daemon's and,
// as a glob, those of runs, also of runs that begin later.
func logFolders(state string) []string {
	return []string{filepath.Join(state, "audit"), filepath.Join(state, "runs", "*", "audit")}
}

func anyLog(globs []string) bool {
	for _, g := range globs {
		if m, err := filepath.Glob(g); err == nil && len(m) > 0 {
			return true
		}
	}
	return false
}

func (f *tailFlags) filter() (audit.Filter, error) {
	out := audit.Filter{Sandbox: f.sandbox, Host: recordedHost(f.host), Reason: f.reason, Kind: f.kind, Verdict: f.verdict, Blocked: f.blocked, Alerts: f.alerts, Limit: f.lines}
	if f.lines < 0 {
		return out, usage("-n %d: not a number of events", f.lines)
	}
	if err := checkFilter(out); err != nil {
		return out, err
	}
	if f.since == "" {
		return out, nil
	}
	var err error
	out.Since, err = moment("--since", f.since)
	return out, err
}

// sinceHelp says what moment reads.
const sinceHelp = "from this time on: a duration such as 1h or 7d, RFC 3339, or a day"

// moment reads a time: so long ago, RFC 3339, or a day, which is its first
// instant in UTC. What names the flag or parameter that it is of.
func moment(what, s string) (time.Time, error) {
	if d, err := duration(s); err == nil {
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		if t, err = time.Parse(time.DateOnly, s); err == nil {
			return t, nil
		}
		return t, usage("%s %s: neither a duration such as 1h nor a time such as 2026-01-02T15:04:05Z nor a day such as 2026-01-02", what, s)
	}
	return t, nil
}

func usage(format string, args ...any) error {
	return &exit{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// formVar adds the flag for the form of events, byDefault unless it is given.
func formVar(fs *pflag.FlagSet, to *string, byDefault audit.Format) {
	of := []string{string(byDefault)}
	for _, f := range audit.Formats() {
		if f != byDefault {
			of = append(of, string(f))
		}
	}
	choiceVar(fs, to, "output", "o", "form", of...)
}

// newExporter writes events to stdout in the form that flags name.
func newExporter(form string, asJSON bool) (*audit.Exporter, error) {
	if asJSON {
		form = string(audit.FormatJSON)
	}
	return audit.NewExporter(os.Stdout, audit.Format(form), useColor(os.Stdout))
}
