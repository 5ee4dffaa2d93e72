package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
)

// runFlags are the flags of run.
type runFlags struct {
	policy    []string
	vars      []string
	sandbox   string
	state     string
	timeout   time.Duration
	share     []string
	env       []string
	report    bool
	quiet     bool
	logLevel  string
	denied    string
	resolvers []string
	caFile    string
	hosts     []string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox of its own; no root needed",
		Long: `Run a command in namespaces from which the gateway is the only way out.

The command sees an ordinary network: names resolve, HTTPS works, and what the
policy does not allow is refused with a reason. Each secret's environment
variable holds its placeholder; the real value is put into the requests that
the policy allows, outside the sandbox.

It ends with the command's own exit code, with 128 and the signal's number when
a signal ended it: with 143 (SIGTERM) when --timeout did, or 137 (SIGKILL) when
it did not heed that. It ends with 125 for an error of its own, also one of
usage, and with 126 or 127 when the command cannot be run or found.`,
		Example: `  sallyport run --policy sallyport.hcl -- claude
  sallyport run --policy policy.d --sandbox ci --timeout 10m -- make test
  sallyport run --policy sallyport.hcl --share /run/user/1000/bus -- bash`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exit{code: exitSandbox, err: errors.New("run: no command"), hint: "sallyport run --policy sallyport.hcl -- bash"}
			}
			return f.run(args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	fs := cmd.Flags()
	fs.StringArrayVar(&f.policy, "policy", nil, "policy file or folder, - is standard input (repeatable; default: the configured policy.d)")
	varsVar(fs, &f.vars)
	fs.StringVar(&f.sandbox, "sandbox", "", "sandbox of the policy (default: its only one)")
	fs.StringVar(&f.state, "state", "", "folder for CA, keys and logs")
	spanVar(fs, &f.timeout, "timeout", "end the command after this long, by SIGTERM, which exits with 143 (0: never)")
	fs.StringArrayVar(&f.share, "share", nil, "give a path below /run, /tmp or /dev back to the sandbox (repeatable)")
	environVar(fs, &f.env)
	fs.BoolVar(&f.report, "report", false, "let through what policy denies, and record it")
	fs.BoolVar(&f.quiet, "quiet", false, "do not say at the end how much was blocked, or that the time was up")
	choiceVar(fs, &f.logLevel, "log-level", "", "operational log on stderr", "error", "warn", "info", "debug", "trace")
	choiceVar(fs, &f.denied, "denied", "", "how denied names are answered", "explain", "refused", "nxdomain")
	fs.StringArrayVar(&f.resolvers, "resolver", nil, "DNS server address:port for allowed names (repeatable; default: the host's)")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM file of CAs to trust upstream, besides the system's")
	fs.StringArrayVar(&f.hosts, "host", nil, "NAME=ADDRESS: addresses of a name upstream (repeatable)")
	return cmd
}

func (f *runFlags) run(argv []string) error {
	code, err := f.runIn(argv)
	if err != nil {
		e := &exit{code: exitSandbox, err: err}
		if errors.As(err, &e) {
			e.code = exitSandbox
		}
		var setup *capture.SetupError
		if errors.As(err, &setup) && e.hint == "" {
			e.hint = setup.Hint
		}
		return e
	}
	if code != 0 {
		return &exit{code: code}
	}
	return nil
}

// runIn runs argv from start to end: gateway, sandbox, command, and all of
// it down again.
func (f *runFlags) runIn(argv []string) (int, error) {
	if err := capture.HideProcess(); err != nil {
		return 0, err
	}
	s, err := f.settings()
	if err != nil {
		return 0, err
	}
	lockMemory(s.log)
	defer paceHeap(func() int { return 1 })()
	if err := pruneRuns(filepath.Join(s.state, "runs"), time.Now()); err != nil {
		s.log.Warn("old runs were not removed", "error", err)
	}
	st, err := build(s)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err := st.close(); err != nil {
			s.log.Error("gateway was not closed in order", "error", err)
		}
	}()
	if f.report {
		st.loader.adapt = reportOnly
	}
	st.loader.only = f.sandbox
	st.loader.pins = newPins(ownReach().changes, ownFolders(s.state)...)
	if err := diagnosed(st.reload()); err != nil {
		return 0, err
	}
	sb, err := f.identify(st)
	if err != nil {
		return 0, err
	}
	for _, hint := range st.loader.pins.seal() { // nothing of the command has begun
		fmt.Fprintln(os.Stderr, "sallyport: hint:", hint)
	}
	st.warnOfSecrets(sb)
	box, err := capture.Prepare(f.command(st, sb, argv))
	if err != nil {
		return 0, err
	}
	return f.serve(st, sb, box, argv)
}

// serve runs the gateway around the command of box.
func (f *runFlags) serve(st *stack, sb *identity.Sandbox, box *capture.Sandbox, argv []string) (int, error) {
	defer box.Close()
	stopHTTP := background(st.settings.log, "gateway", func(ctx context.Context) error { return st.gateway.Run(ctx, time.Second) })
	defer stopHTTP()
	in := gateway.NewInbound("run", box.Sockets(), func(netip.Addr) (*identity.Sandbox, bool) { return sb, true })
	stopCapture := background(st.settings.log, "capture", func(ctx context.Context) error { return st.gateway.Serve(ctx, in) })
	defer stopCapture()
	if st.loader.frozen() {
		st.settings.log.Info("the command can change the policy's files; what was loaded stays in force until it ends")
	} else {
		stopWatch := background(st.settings.log, "reload", func(ctx context.Context) error { return st.watch(ctx, nil) })
		defer stopWatch()
	}

	cwd, _ := os.Getwd() // "" where it is gone
	if err := st.record(sb, "command started", &audit.Run{Argv: st.covered(argv...), Cwd: st.covered(cwd)[0], UID: os.Getuid()}); err != nil {
		return 0, err
	}
	signals := capture.CatchSignals() // from here on they are the command's
	defer signals.Release()
	if err := box.Start(); err != nil {
		return f.ended(st, sb, argv, capture.Result{ExitCode: exitSandbox}, err)
	}
	stopSignals := box.Forward(signals)
	result, err := box.Wait()
	stopSignals()
	stopCapture() // what was refused and not yet told is recorded first
	return f.ended(st, sb, argv, result, err)
}

// ended records the end of the command and says what was blocked.
func (f *runFlags) ended(st *stack, sb *identity.Sandbox, argv []string, r capture.Result, err error) (int, error) {
	var notRun *capture.ExecError
	if errors.As(err, &notRun) {
		r.ExitCode = notRun.Code
	}
	run := &audit.Run{Argv: st.covered(argv...), UID: os.Getuid(), Exit: &r.ExitCode, TimedOut: r.TimedOut, CPUMS: r.CPU.Milliseconds(), MaxRSS: r.MaxRSS}
	sent, received := st.gateway.Used(sb.ID)
	run.Bytes = &audit.Bytes{Sent: sent, Received: received}
	if r.Signal != 0 {
		run.Signal = r.Signal.String()
	}
	if werr := st.record(sb, "command ended", run); werr != nil {
		return 0, errors.Join(err, werr)
	}
	if notRun != nil {
		fmt.Fprintln(os.Stderr, "sallyport: error:", err)
		return notRun.Code, nil
	}
	if err != nil {
		return 0, err
	}
	if r.TimedOut && !f.quiet {
		fmt.Fprintf(os.Stderr, "sallyport: the command was ended after %s (--timeout)\n", f.timeout)
	}
	if n := st.gateway.Denials(); n > 0 && !f.quiet {
		fmt.Fprintf(os.Stderr, "sallyport: %d blocked; see: sallyport tail --blocked --sandbox %s%s\n", n, sb.Name, stateFlag(f.state))
	}
	return r.ExitCode, nil
}

// warnOfSecrets says which secrets of sb could not be had at the start, as far
// as they were looked for. Requests that need one are refused until it can.
func (st *stack) warnOfSecrets(sb *identity.Sandbox) {
	usable := st.loader.secretsOf(sb.Policy)
	for _, s := range st.gateway.Snapshot().Secrets.Status() {
		if s.Error != "" && !s.Held && slices.Contains(usable, s.Name) {
			fmt.Fprintf(os.Stderr, "sallyport: hint: secret %s cannot be had, and requests that need it are refused: %s\n", s.Name, s.Error)
		}
	}
}

// identify begins the life of the run's sandbox.
func (f *runFlags) identify(st *stack) (*identity.Sandbox, error) {
	name, err := chooseSandbox(st.gateway.Policy().Sandboxes(), f.sandbox)
	if err != nil {
		return nil, err
	}
	sb := identity.Sandbox{Name: name, ID: audit.NewID(), Policy: name, Labels: st.gateway.Policy().Sandbox(name).Labels}
	if err := st.sandboxes.Add(sb); err != nil {
		return nil, err
	}
	return st.sandboxes.ByID(sb.ID), nil
}

// someOf lists names, not all of a long list.
func someOf(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// chooseSandbox is the sandbox of that name, or the only one there is.
func chooseSandbox(names []string, name string) (string, error) {
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", &exit{code: exitFailed, err: errors.New("the policy declares no sandbox"), hint: `add a block: sandbox "work" { allow "api.example.com" {} }`}
	case name == "":
		return "", &exit{code: exitFailed, err: errors.New("the policy has several sandboxes"), hint: "choose with --sandbox: " + someOf(names)}
	case !slices.Contains(names, name):
		return "", &exit{code: exitFailed, err: fmt.Errorf("the policy has no sandbox %q", name), hint: "it has: " + someOf(names)}
	}
	return name, nil
}

// keepRuns is how long the log of a run is kept.
const keepRuns = 30 * 24 * time.Hour

// pruneWait is how long a run must have been too old before it is removed: the
// clock may have gone forward by mistake.
const pruneWait = time.Hour

// pruneRuns removes what old runs left. A run that is still going has a
// young log.
func pruneRuns(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		run := filepath.Join(dir, e.Name())
		info, err := os.Stat(filepath.Join(run, "state.db"))
		if err != nil {
			continue
		}
		mark := filepath.Join(run, "old") // since its time, that of the file
		found, err := os.Stat(mark)
		marked := err == nil
		switch {
		case now.Sub(info.ModTime()) < keepRuns:
			if marked {
				errs = append(errs, os.Remove(mark))
			}
		case !marked:
			errs = append(errs, os.WriteFile(mark, nil, 0o600), os.Chtimes(mark, now, now))
		case now.Sub(found.ModTime()) >= pruneWait:
			errs = append(errs, os.RemoveAll(run))
		}
	}
	return errors.Join(errs...)
}
