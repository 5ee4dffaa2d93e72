package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"sallyport/audit"
	"sallyport/certs"
	"sallyport/gateway"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
	"sallyport/policy"
	"sallyport/policy/policyfile"
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

It ends with the command's own exit code, or with 125 when the sandbox could
not be made.`,
		Example: `  sallyport run --policy sallyport.hcl -- claude
  sallyport run --policy policy.d --sandbox ci --timeout 10m -- make test
  sallyport run --policy sallyport.hcl --share /run/user/1000/bus -- bash`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exit{code: exitUsage, err: errors.New("run: no command"), hint: "sallyport run --policy sallyport.hcl -- bash"}
			}
			return f.run(args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	fs := cmd.Flags()
	fs.StringArrayVar(&f.policy, "policy", nil, "policy file or folder, - is standard input (repeatable; default: the configured policy.d)")
	fs.StringArrayVar(&f.vars, "var", nil, "NAME=VALUE for a variable block of the policy (repeatable)")
	fs.StringVar(&f.sandbox, "sandbox", "", "sandbox of the policy (default: its only one)")
	fs.StringVar(&f.state, "state", "", "folder for CA, keys and logs")
	fs.DurationVar(&f.timeout, "timeout", 0, "end the command after this long (0: never)")
	fs.StringArrayVar(&f.share, "share", nil, "give a path below /run, /tmp or /dev back to the sandbox (repeatable)")
	fs.StringArrayVar(&f.env, "env", nil, "set NAME=VALUE in the sandbox, or unset NAME (repeatable)")
	fs.BoolVar(&f.report, "report", false, "let through what policy denies, and record it")
	fs.BoolVar(&f.quiet, "quiet", false, "do not say at the end how much was blocked, or that the time was up")
	fs.StringVar(&f.logLevel, "log-level", "error", "operational log on stderr: trace, debug, info, warn, error")
	fs.StringVar(&f.denied, "denied", "explain", "how denied names are answered: explain, refused, nxdomain")
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
	if err := pruneRuns(filepath.Join(s.state, "runs")); err != nil {
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
	if err := diagnosed(st.reload()); err != nil {
		return 0, err
	}
	sb, err := f.identify(st)
	if err != nil {
		return 0, err
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
	stopWatch := background(st.settings.log, "reload", func(ctx context.Context) error { return st.watch(ctx, nil) })
	defer stopWatch()

	cwd, _ := os.Getwd() // "" where it is gone
	if err := st.record(sb, "command started", &audit.Run{Argv: argv, Cwd: cwd, UID: os.Getuid()}); err != nil {
		return 0, err
	}
	signals := catchSignals() // from here on they are the command's
	defer signal.Stop(signals)
	if err := box.Start(); err != nil {
		return f.ended(st, sb, argv, capture.Result{ExitCode: exitSandbox}, err)
	}
	stopSignals := forwardSignals(box, signals)
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
	run := &audit.Run{Argv: argv, Exit: &r.ExitCode, TimedOut: r.TimedOut, CPUMS: r.CPU.Milliseconds(), MaxRSS: r.MaxRSS}
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

func stateFlag(state string) string {
	if state == "" {
		return ""
	}
	return " --state " + state
}

// settings come from the flags.
func (f *runFlags) settings() (settings, error) {
	p, err := userPaths()
	if err != nil && f.state == "" {
		return settings{}, err
	}
	state := p.state
	if f.state != "" {
		if state, err = filepath.Abs(f.state); err != nil {
			return settings{}, err
		}
	}
	level := hclog.LevelFromString(f.logLevel)
	if level == hclog.NoLevel {
		return settings{}, fmt.Errorf("--log-level %s: none of trace, debug, info, warn, error", f.logLevel)
	}
	s := settings{state: state, own: filepath.Join(state, "runs", audit.NewID()), policy: f.policy, vars: variables(f.vars),
		log: hclog.New(&hclog.LoggerOptions{Name: "sallyport", Level: level, Output: os.Stderr, IndependentLevels: true})}
	if len(s.policy) == 0 {
		if s.policy, err = configuredPolicy(p); err != nil {
			return settings{}, err
		}
	}
	if s.stdin, err = policyInput(s.policy, os.Stdin); err != nil {
		return settings{}, err
	}
	if s.denied, err = deniedMode(f.denied); err != nil {
		return settings{}, err
	}
	s.upstream = upstreamSettings{resolvers: f.resolvers, caFile: f.caFile}
	s.upstream.hosts, err = parseHosts(f.hosts)
	return s, err
}

// configuredPolicy is the policy of the user's configuration, or an error
// that says how to get one.
func configuredPolicy(p paths) ([]string, error) {
	dir := filepath.Join(p.config, "policy.d")
	if _, err := os.Stat(dir); err == nil {
		return []string{dir}, nil
	}
	return nil, &exit{code: exitFailed, err: fmt.Errorf("no policy: no --policy was given and there is no %s; without a policy nothing is allowed", dir),
		hint: "sallyport init writes a starter policy; then: sallyport run --policy sallyport.hcl -- COMMAND"}
}

func deniedMode(s string) (gateway.DeniedMode, error) {
	switch s {
	case "", "explain":
		return gateway.Explain, nil
	case "refused":
		return gateway.Refused, nil
	case "nxdomain":
		return gateway.NXDomain, nil
	}
	return 0, &exit{code: exitUsage, err: fmt.Errorf("denied: %q is none of explain, refused, nxdomain", s)}
}

func parseHosts(list []string) (map[string][]netip.Addr, error) {
	hosts := map[string][]netip.Addr{}
	for _, h := range list {
		name, text, ok := strings.Cut(h, "=")
		addr, err := netip.ParseAddr(text)
		if !ok || err != nil {
			return nil, &exit{code: exitUsage, err: fmt.Errorf("--host %s: not of the form NAME=ADDRESS", h)}
		}
		canonical, err := policy.CanonicalHost(name)
		if err != nil {
			return nil, &exit{code: exitUsage, err: fmt.Errorf("--host %s: %w", h, err)}
		}
		hosts[canonical] = append(hosts[canonical], addr)
	}
	return hosts, nil
}

// reportOnly puts every sandbox into report mode.
func reportOnly(d *policy.Document) {
	for i := range d.Sandboxes {
		d.Sandboxes[i].Mode = policy.Report
	}
}

// diagnosed prints diagnostics and makes an error of those that are one.
func diagnosed(diags *policyfile.Diagnostics) error {
	if diags.Len() == 0 {
		return nil
	}
	_ = diags.WriteText(os.Stderr, useColor(os.Stderr)) // there is nowhere else to say it
	if diags.HasErrors() {
		return &exit{code: exitFailed, err: errors.New("the policy has errors; nothing was started")}
	}
	return nil
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

// chooseSandbox is the sandbox of that name, or the only one there is.
func chooseSandbox(names []string, name string) (string, error) {
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", &exit{code: exitFailed, err: errors.New("the policy declares no sandbox"), hint: `add a block: sandbox "work" { allow "api.example.com" {} }`}
	case name == "":
		return "", &exit{code: exitFailed, err: errors.New("the policy has several sandboxes"), hint: "choose with --sandbox: " + strings.Join(names, ", ")}
	case !slices.Contains(names, name):
		return "", &exit{code: exitFailed, err: fmt.Errorf("the policy has no sandbox %q", name), hint: "it has: " + strings.Join(names, ", ")}
	}
	return name, nil
}

// command is what the sandbox runs, with what it must not see.
func (f *runFlags) command(st *stack, sb *identity.Sandbox, argv []string) capture.Command {
	files := maps.Clone(st.trust)
	files["env.sh"] = certs.EnvScript(st.sandboxEnv(sb, capture.FilesDir))
	over := map[string]string{}
	if _, ok := files[certs.TrustBundleFile]; ok {
		for _, path := range certs.SystemBundlePaths() {
			over[path] = certs.TrustBundleFile
		}
	}
	env := f.environment(st, sb)
	return capture.Command{Argv: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Share: f.share, Hide: st.hidden(), Files: files, Over: over, Own: browserTrust(env), Timeout: f.timeout}
}

// hidden are the paths that no sandbox on this host may read.
func (st *stack) hidden() []string {
	return append([]string{st.settings.state}, st.loader.sourceFiles()...)
}

// proxyVariables would send clients to a proxy that the sandbox cannot reach.
func proxyVariables() []string {
	return []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"}
}

// environment is the caller's, without what is secret or of no use inside,
// and with what the sandbox needs.
func (f *runFlags) environment(st *stack, sb *identity.Sandbox) []string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	for name := range env {
		if slices.Contains(proxyVariables(), strings.ToLower(name)) {
			delete(env, name)
		}
	}
	for _, name := range st.loader.sourceVariables() {
		value := os.Getenv(name)
		delete(env, name)
		for other, text := range env { // a copy under another name
			if value != "" && strings.Contains(text, value) {
				delete(env, other)
			}
		}
	}
	for _, name := range st.loader.passedVariables() {
		if !slices.Contains([]string{"PATH", "HOME", "USER", "LANG", "TZ"}, name) {
			delete(env, name)
		}
	}
	maps.Copy(env, st.sandboxEnv(sb, capture.FilesDir))
	env["SALLYPORT_SANDBOX"] = sb.Name
	for _, kv := range f.env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		} else {
			delete(env, name)
		}
	}
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// catchSignals takes the signals that are for the command. One that was
// ignored when this process started (nohup) stays so, for the command too.
func catchSignals() chan os.Signal {
	ch := make(chan os.Signal, 64)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH} {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	return ch
}

// forwardSignals passes signals on to the command, which has started, until
// the returned function is called.
func forwardSignals(box *capture.Sandbox, signals <-chan os.Signal) func() {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				box.Signal(s)
				if s == syscall.SIGTERM || s == syscall.SIGHUP {
					box.Signal(syscall.SIGCONT) // a command that is stopped must see it
				}
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// keepRuns is how long the log of a run is kept.
const keepRuns = 30 * 24 * time.Hour

// pruneRuns removes what old runs left. A run that is still going has a
// young log.
func pruneRuns(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name(), "state.db"))
		if err != nil || time.Since(info.ModTime()) < keepRuns {
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
