package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sallyport/audit"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Prove the audit log"}
	var state, key string
	var asJSON bool
	verify := &cobra.Command{
		Use:   "verify [FOLDER...]",
		Short: "Check the hash chain of logs, and name the first record that breaks it",
		Example: `  sallyport audit verify
  sallyport audit verify --json /var/lib/sallyport/audit
  sallyport audit verify --key 3b6a... /mnt/backup/audit`,
		RunE: func(_ *cobra.Command, dirs []string) error { return verifyLogs(state, key, dirs, asJSON) },
	}
	verify.Flags().StringVar(&state, "state", "", "state folder of the gateway")
	verify.Flags().StringVar(&key, "key", "", "public key of the checkpoints, in hex: every checkpoint must be signed by it")
	verify.Flags().BoolVar(&asJSON, "json", false, "one JSON object for each log")
	cmd.AddCommand(verify, statsCommand(), exportCommand())
	return cmd
}

// rangeFlags choose events of the log by time and by what they are about.
type rangeFlags struct {
	tailFlags
	until string
}

func (f *rangeFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.state, "state", "", "state folder of the gateway")
	fs.BoolVar(&f.blocked, "blocked", false, "only what was denied")
	fs.BoolVar(&f.alerts, "alerts", false, "only what alerts")
	wordVar(fs, &f.since, "since", sinceHelp)
	wordVar(fs, &f.until, "until", "before this time")
	wordVar(fs, &f.sandbox, "sandbox", "only of this sandbox, by name or id")
	wordVar(fs, &f.host, "host", "only of hosts that match this glob")
	wordVar(fs, &f.reason, "reason", "only with this reason, or this class of error")
	wordVar(fs, &f.kind, "kind", "only of this kind")
	wordVar(fs, &f.verdict, "verdict", "only what was decided so: allow or deny")
	fs.BoolVar(&f.json, "json", false, "JSON")
}

func (f *rangeFlags) choose() (dirs []string, filter audit.Filter, err error) {
	if filter, err = f.filter(); err != nil {
		return nil, filter, err
	}
	if f.until != "" {
		if filter.Until, err = moment("--until", f.until); err != nil {
			return nil, filter, err
		}
		if !filter.Since.IsZero() && !filter.Since.Before(filter.Until) {
			return nil, filter, usage("--since %s is not before --until %s", f.since, f.until)
		}
	}
	state, err := stateFolder(f.state)
	if err != nil {
		return nil, filter, err
	}
	dirs = logFolders(state)
	if !anyLog(dirs) {
		err = noLog(state)
	}
	return dirs, filter, err
}

func statsCommand() *cobra.Command {
	var f rangeFlags
	var top int
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count decisions by time, host, reason and sandbox",
		Example: `  sallyport audit stats --since 24h
  sallyport audit stats --blocked --sandbox ci --top 20`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if top < 1 {
				return usage("--top %d: want 1 or more", top)
			}
			dirs, filter, err := f.choose()
			if err != nil {
				return err
			}
			s, err := audit.Summarize(context.Background(), dirs, filter, top)
			if err != nil {
				return err
			}
			var bad unreadable
			for _, err := range s.BadLines {
				bad.note(err)
			}
			bad.lines = s.Bad
			if s.Decisions == 0 && s.Alerts == 0 {
				nothingMatches()
			}
			if f.json {
				err = json.NewEncoder(os.Stdout).Encode(s)
			} else {
				err = printStats(s)
			}
			if err != nil {
				return pipeClosed(err)
			}
			return bad.failure()
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().IntVar(&top, "top", 10, "how many of each list")
	return cmd
}

func printStats(s audit.Summary) error {
	w := newTable()
	fmt.Fprintf(w, "decisions\t%d\tallowed\t%d\tblocked\t%d\talerts\t%d\n", s.Decisions, s.Allowed, s.Blocked, s.Alerts)
	if len(s.Bins) > 0 {
		fmt.Fprintf(w, "by time\t%s\tfrom %s, %s each\n", audit.Sparkline(s.Bins), s.From.Local().Format("2006-01-02 15:04"), s.Step)
	}
	for _, list := range []struct {
		title   string
		tallies []audit.Tally
	}{{"HOST", s.Hosts}, {"REASON", s.Reasons}, {"SANDBOX", s.Sandboxes}} {
		fmt.Fprintf(w, "\n%s\tDECISIONS\tBLOCKED\tLAST\t\n", list.title)
		for _, t := range list.tallies {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", audit.Escape(t.Name, 80), t.Count, t.Blocked, t.Last.Local().Format("2006-01-02 15:04:05"), audit.Sparkline(t.Bins))
		}
	}
	return w.Flush()
}

func exportCommand() *cobra.Command {
	var f rangeFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a range of the log to stdout, in another system's form",
		Example: `  sallyport audit export --since 24h -o ocsf > yesterday.ndjson
  sallyport audit export --blocked -o csv > blocked.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.oneForm(cmd); err != nil {
				return err
			}
			dirs, filter, err := f.choose()
			if err != nil {
				return err
			}
			filter.Limit = 0
			out, err := newExporter(f.output, f.json)
			if err != nil {
				return err
			}
			found, bad := false, unreadable{}
			for e, err := range audit.Read(context.Background(), dirs, filter) {
				if bad.note(err) {
					continue
				}
				if err != nil {
					return errors.Join(err, out.Flush())
				}
				found = true
				if err := out.Write(e); err != nil {
					return pipeClosed(err)
				}
			}
			if !found {
				nothingMatches()
			}
			if err := out.Flush(); err != nil {
				return pipeClosed(err)
			}
			return bad.failure()
		},
	}
	f.add(cmd.Flags())
	formVar(cmd.Flags(), &f.output, audit.FormatJSON)
	return cmd
}

func verifyLogs(state, key string, dirs []string, asJSON bool) error {
	var o audit.VerifyOptions
	if key != "" {
		k, err := audit.ParseKey(key)
		if err != nil {
			return usage("--key: %v", err)
		}
		o.Key = k
	}
	if len(dirs) == 0 {
		s, err := stateFolder(state)
		if err != nil {
			return err
		}
		for _, g := range logFolders(s) {
			m, err := filepath.Glob(g)
			if err != nil {
				return err
			}
			dirs = append(dirs, m...)
		}
		if len(dirs) == 0 {
			return noLog(s)
		}
	}
	failed := false
	for _, dir := range dirs {
		if _, err := os.ReadDir(dir); err != nil { // a log that is not there is not one without segments
			return &exit{code: exitFailed, err: fmt.Errorf("audit log: %w", err), hint: "name the folder of the segments: audit in the state folder"}
		}
		report, err := audit.VerifyWith(dir, o)
		var broken *audit.Break
		switch {
		case err != nil && !errors.As(err, &broken):
			return err
		case asJSON:
			err = json.NewEncoder(os.Stdout).Encode(report)
		case broken != nil:
			err = put("%s: BROKEN: %v\n", dir, broken)
		default:
			err = put("%s: ok: %s in %s, seq %d to %d, head %s\n%s", dir, several(report.Records, "record"), several(report.Segments, "segment"),
				report.FirstSeq, report.LastSeq, report.Head, signedText(report))
		}
		if err != nil {
			return err
		}
		failed = failed || broken != nil
	}
	if failed {
		return &exit{code: exitFailed}
	}
	return nil
}

// signedText says how much of a log is signed, and by which keys.
func signedText(r audit.Report) string {
	if r.Checkpoints == 0 {
		return "  no checkpoint: nothing is signed\n"
	}
	return fmt.Sprintf("  %s, signed up to seq %d by the key %s\n", several(r.Checkpoints, "checkpoint"), r.SignedSeq, strings.Join(r.Keys, ", "))
}
