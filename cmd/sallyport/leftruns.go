package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"sallyport/audit"
)

// owedFile is in the folder of a run from when it has somebody to notify until
// everything is delivered. It has the paths of the run's policy, one a line: the
// notices of one policy are not for the sinks of another.
const owedFile = "notices-owed"

// maxLeftRuns bounds how many runs another one finishes.
const maxLeftRuns = 3

// owe notes that the run may owe notices.
func (a *alerting) owe() error {
	if a.owed == "" {
		return nil
	}
	return os.WriteFile(a.owed, []byte(strings.Join(absolute(a.policy), "\n")+"\n"), 0o600)
}

// settle notes that the run owes nothing more.
func (a *alerting) settle() error {
	if a.owed == "" {
		return nil
	}
	if err := os.Remove(a.owed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func absolute(paths []string) []string {
	var out []string
	for _, p := range paths {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		out = append(out, p)
	}
	return out
}

// leftRuns are the folders of runs under the same policy that owe notices, the
// oldest first. Some of them may be going on.
func leftRuns(state string, policy []string) ([]string, error) {
	owed, err := filepath.Glob(filepath.Join(state, "runs", "*", owedFile))
	if err != nil {
		return nil, err
	}
	want := strings.Join(absolute(policy), "\n") + "\n"
	var dirs []string
	for _, file := range owed {
		if b, err := os.ReadFile(file); err == nil && string(b) == want {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// finishRun evaluates what a run that was killed has logged, and delivers what
// it owes. It returns how many notices still wait, and audit.ErrBusy for a run
// that is going on.
func finishRun(dir string, s alertSetup, policy []string, log hclog.Logger) (waiting int, err error) {
	state, err := audit.OpenState(filepath.Join(dir, "state.db"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), State: state, Logger: log})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	folder, err := audit.NewFolder(audit.FolderOptions{Log: l})
	if err != nil {
		return 0, err
	}
	a := &alerting{state: state, log: l, folder: folder, dir: filepath.Join(dir, "audit"), logger: log, grace: runGrace,
		count: func(string, string) {}, owed: filepath.Join(dir, owedFile), policy: policy}
	if err := a.swap(s); err != nil {
		return 0, err
	}
	err = a.close()
	for _, d := range a.spools {
		waiting += d.spool.Waiting()
	}
	return waiting, err
}

// finishOthers finishes some runs under the same policy that were killed.
func (a *alerting) finishOthers(s alertSetup) {
	own := filepath.Dir(a.owed)
	dirs, err := leftRuns(filepath.Dir(filepath.Dir(own)), a.policy)
	if err != nil {
		a.logger.Warn("runs that were killed not looked for", "error", err)
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == own })
	for _, dir := range dirs[:min(len(dirs), maxLeftRuns)] {
		if _, err := finishRun(dir, s, a.policy, a.logger); err != nil && !errors.Is(err, audit.ErrBusy) {
			a.logger.Warn("notices of a run that was killed not delivered", "run", filepath.Base(dir), "error", err)
		}
	}
}

func alertDeliverCommand() *cobra.Command {
	var f secretFlags
	var state string
	cmd := &cobra.Command{Use: "deliver", Short: "Deliver what runs that were killed have left",
		Long: `Deliver the notices that runs under this policy have left because they were
killed, or because a sink did not take them in time. The next run under the same
policy does so too; the daemon delivers its own after a restart.`,
		Example: `  sallyport alert deliver --policy policy.d`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, _, err := (&f).load()
			if err != nil {
				return err
			}
			defer l.close()
			folder, err := stateFolder(state)
			if err != nil {
				return err
			}
			return deliverLeft(cmd.Context(), folder, l)
		}}
	cmd.Flags().StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; default: the configured policy.d)")
	varsVar(cmd.Flags(), &f.vars)
	cmd.Flags().StringVar(&state, "state", "", "state folder of the runs")
	return cmd
}

func deliverLeft(ctx context.Context, state string, l *loader) error {
	dirs, err := leftRuns(state, l.paths)
	if err != nil {
		return err
	}
	waiting, runs := 0, 0
	for _, dir := range dirs {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := finishRun(dir, l.alerts, l.paths, l.log)
		if errors.Is(err, audit.ErrBusy) {
			continue // it is going on
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", filepath.Base(dir), err)
		}
		runs++
		waiting += n
	}
	if waiting > 0 {
		return &exit{code: exitFailed, err: fmt.Errorf("%d notices were not taken", waiting), hint: "sallyport alert test NAME says why"}
	}
	return put("nothing is owed; runs that were finished: %d\n", runs)
}
