package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"sallyport/gateway/capture"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	config string
	policy []string
	vars   []string
	lock   bool
	remove bool
	check  bool
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "The daemon: default route of interfaces, gateway of namespaces",
		Long: `Serve every capture of the daemon file, and the namespaces that are attached
with "sallyport sandbox attach".

SIGHUP, or a change of the policy's files, reloads the policy; a policy with an
error changes nothing. SIGTERM lets requests finish for up to 30 seconds. While
the daemon is down the sandboxes have no network; when it is up again they have
the same addresses as before. Under systemd what they send meanwhile waits.`,
		Example: `  sallyport serve
  sallyport serve --config ./daemon.hcl --policy ./policy.d
  sallyport serve --check       is the daemon file good, and its policy?
  sallyport serve --lock        at boot: hold the interfaces of the daemon file before anything starts, and exit
  sallyport serve --remove      remove the kernel rules that a stopped daemon left`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.serve() },
	}
	cmd.Flags().StringVar(&f.config, "config", "", "daemon file (default: sallyport.hcl in the configuration folder, if there is one)")
	cmd.Flags().StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; instead of the daemon file's)")
	varsVar(cmd.Flags(), &f.vars)
	cmd.Flags().BoolVar(&f.lock, "lock", false, "close the interfaces of the daemon file, there or not yet, to all but captures, and exit; done again it changes nothing")
	cmd.Flags().BoolVar(&f.remove, "remove", false, "remove the rules in the kernel, once the daemon is stopped, and exit; interfaces that they guarded have no guard then")
	cmd.Flags().BoolVar(&f.check, "check", false, "say what is wrong with the daemon file and its policy, or that they are good, and exit: 78 or 0; nothing is opened or written; users, groups and files that it names are looked for, interfaces, namespaces and engines are not")
	cmd.MarkFlagsMutuallyExclusive("lock", "remove", "check")
	return cmd
}

// drainTime is how long requests may go on after SIGTERM.
const drainTime = 30 * time.Second

func (f *serveFlags) serve() error {
	if f.remove {
		return f.removeRules()
	}
	if f.lock || f.check {
		only := f.lockOnly
		if f.check {
			only = f.checkOnly
		}
		if err := only(); err != nil {
			return &exit{code: exitConfig, err: err, hint: hintOf(err)}
		}
		return nil
	}
	d, err := f.start()
	if err != nil {
		return &exit{code: exitConfig, err: err, hint: hintOf(err)}
	}
	defer paceHeap(d.sandboxes.Len)()
	return d.run()
}

func hintOf(err error) string {
	var e *exit
	if errors.As(err, &e) {
		return e.hint
	}
	return ""
}

// start reads the configuration, builds the stack and opens every socket.
// Nothing is served when it fails.
func (f *serveFlags) start() (_ *daemonProcess, err error) {
	p, file, err := f.readConfig()
	if err != nil {
		return nil, err
	}
	s, err := f.settings(p, file)
	if err != nil {
		return nil, errors.Join(err, file.lock(hclog.NewNullLogger())) // as below
	}
	kept := newKeeper(s.log)                 // before any other process is started
	if err := file.lock(s.log); err != nil { // first: what fails after it leaves nothing open
		return nil, err
	}
	follow, err := file.followed(&s)
	if err != nil {
		return nil, err
	}
	push, err := file.pushed(&s)
	if err != nil {
		return nil, err
	}
	if len(s.policy) == 0 {
		if s.policy, err = policyFolder(p); err != nil {
			return nil, err
		}
	}
	if err := capture.HideProcess(); err != nil {
		return nil, err
	}
	lockMemory(s.log)
	st, err := build(s)
	if err != nil {
		return nil, err
	}
	d := &daemonProcess{stack: st, file: file, runtime: p.runtime, git: follow, push: push, keeper: kept}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if err := d.origin(); err != nil {
		return nil, err
	}
	if err := diagnosed(st.reload()); err != nil {
		return nil, err
	}
	if err := d.openControl(); err != nil {
		return nil, err
	}
	if err := d.openMetrics(); err != nil {
		return nil, err
	}
	if err := d.openCaptures(); err != nil {
		return nil, err
	}
	return d, d.harden()
}

// configPath is where the daemon file is, if there is one.
func (f *serveFlags) configPath(p paths) string {
	if f.config != "" {
		return f.config
	}
	return filepath.Join(p.config, "sallyport.hcl")
}

// readConfig reads the daemon file of the user who calls, and says where else
// things are.
func (f *serveFlags) readConfig() (paths, *daemonFile, error) {
	p, err := userPaths()
	if err != nil {
		return p, nil, err
	}
	file, err := f.readFile(f.configPath(p))
	return p, file, err
}

func (f *serveFlags) readFile(path string) (*daemonFile, error) {
	if f.config == "" && !f.lock { // a lock without a file would hold nothing
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return &daemonFile{}, nil
		}
	}
	file, parser, diags := readDaemonFile(path)
	if diags.HasErrors() {
		if err, ok := diags[0].Extra.(error); ok {
			return nil, &exit{code: exitConfig, err: fmt.Errorf("daemon file: %w", err), hint: "name a file with --config that is there and that this user may read"}
		}
		if b := policyBlock(parser.Files()[path]); b != nil { // what is wrong with it as a daemon file leads nowhere
			return nil, &exit{code: exitConfig, err: fmt.Errorf("%s:%d: this is a policy (it has a block %q), and no daemon file", path, b.TypeRange.Start.Line, b.Type),
				hint: fmt.Sprintf("name it with --policy %s, or with policy = [%q] in the daemon file, which --config names", path, path)}
		}
		printHCL(os.Stderr, parser, diags)
		return nil, &exit{code: exitConfig, err: fmt.Errorf("%s has errors; nothing was started", path)}
	}
	return file, nil
}

// daemonProcess is the running daemon.
type daemonProcess struct {
	*stack
	file     *daemonFile
	runtime  string
	control  *control
	scraped  net.Listener // of the metrics; nil without them
	captures captures
	keeper   *keeper
	git      *gitPolicy    // nil where the policy is not followed by commit
	push     *pushedPolicy // nil where it is not pushed
}

// run serves until SIGTERM or SIGINT.
func (d *daemonProcess) run() error {
	log := d.settings.log
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(stop)
	stopHTTP := background(log, "gateway", func(ctx context.Context) error { return d.gateway.Run(ctx, drainTime) })
	d.captures.serve()
	stopLinks := background(log, "interfaces", d.captures.watchLinks)
	stopEnds := background(log, "namespaces", d.captures.watchEnds)
	stopEngines := background(log, "containers", d.captures.watchEngines)
	stopWatch := background(log, "reload", func(ctx context.Context) error { return d.watch(ctx, d.captures.reconsider) })
	stopGit := background(log, "policy_git", func(ctx context.Context) error { return d.followGit(ctx, d.git, d.captures.reconsider) })
	stopControl := background(log, "control socket", d.control.serve)
	stopWatchdog := background(log, "watchdog", d.watchdog)
	stopMetrics := background(log, "metrics", func(ctx context.Context) error {
		if d.scraped == nil {
			return nil
		}
		return d.stack.metrics.serve(ctx, d.scraped, d.control.ready)
	})
	log.Info("serving", "policy", d.loader.paths, "control", d.control.path)
	notify(daemon.SdNotifyReady)

	sig := <-stop
	log.Info("stopping", "signal", sig.String())
	notify(daemon.SdNotifyStopping)
	go func() {
		<-stop // a second signal does not wait
		d.gateway.CutAll()
	}()
	stopWatchdog()
	stopControl()
	stopMetrics()
	stopGit()
	stopWatch()
	stopEngines()
	stopLinks()
	stopEnds()
	d.captures.close()
	stopHTTP()
	return d.close()
}

// openMetrics listens where the daemon file says.
func (d *daemonProcess) openMetrics() (err error) {
	if d.file.Metrics == nil {
		return nil
	}
	if d.scraped, err = net.Listen("tcp", d.file.Metrics.Listen); err != nil {
		return d.file.at(err, "metrics", "listen")
	}
	return nil
}

func notify(state string) {
	_, _ = daemon.SdNotify(false, state) // without systemd there is nobody to tell
}

func (d *daemonProcess) close() error {
	if d.control != nil {
		_ = d.control.close() // the socket is of no use without the daemon
	}
	d.captures.close()
	return d.stack.close()
}
