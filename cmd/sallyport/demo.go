package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sallyport/audit"
)

func demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "The tour: a real sandbox, a local HTTPS origin, allowed, blocked and swapped; no internet",
		Long: `Start an HTTPS origin on this machine, run curl in real sandboxes against it,
and show for each attempt what the sandbox saw, what the origin received, and
what the audit log says. What is shown is checked: a wrong outcome is exit 1.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return demo() },
	}
}

// demoSecret is the real value, which only the gateway and the origin see.
const demoSecret = "sk-live-4f9d2c7e1b8a"

// demoTime bounds the whole tour.
const demoTime = 2 * time.Minute

// demoEnd bounds how long a sandbox of a tour that is stopped may take to end.
const demoEnd = 10 * time.Second

// tour is one run of the demo.
type tour struct {
	dir    string // policy, origin's CA, state
	origin *demoOrigin
	color  bool
}

// demoStep is one attempt and what must come of it.
type demoStep struct {
	title    string
	shell    string   // run by sh in the sandbox
	sees     []string // in what the sandbox prints
	never    []string // not in it
	received string   // by the origin: the Authorization of a request; "" is no request
	reason   string   // of the decision that counts
	kind     audit.Kind
}

func demo() error {
	if _, err := exec.LookPath("curl"); err != nil {
		return &exit{code: exitFailed, err: errors.New("the demo runs curl, which is not installed"), hint: "apt-get install curl"}
	}
	stops := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		stops = append(stops, syscall.SIGHUP)
	}
	stopped, release := signal.NotifyContext(context.Background(), stops...)
	defer release()
	dir, err := os.MkdirTemp("", "sallyport-demo-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(stopped, demoTime)
	defer cancel()
	err = tourIn(ctx, dir)
	if stopped.Err() != nil { // what went wrong after it is of no interest
		err = errors.New("the demo was stopped before its end")
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// tourIn makes the whole tour, with dir for its files.
func tourIn(ctx context.Context, dir string) error {
	origin, err := startDemoOrigin()
	if err != nil {
		return err
	}
	defer origin.close()
	t := &tour{dir: dir, origin: origin, color: useColor(os.Stdout)}
	if err := t.prepare(); err != nil {
		return err
	}
	began := time.Now()
	steps := demoSteps(origin.port)
	for i, s := range steps {
		if err := t.step(ctx, i+1, s); err != nil {
			return &exit{code: exitFailed, err: fmt.Errorf("step %d, %s: %w", i+1, s.title, err)}
		}
	}
	if err := t.probe(ctx); err != nil {
		return &exit{code: exitFailed, err: fmt.Errorf("probe: %w", err)}
	}
	return put("\nAll %d attempts, and those of the probe, ended as they must, in %.1f s. The key never entered a sandbox.\n", len(steps), time.Since(began).Seconds())
}

// prepare writes the policy and the origin's CA, and shows the policy.
func (t *tour) prepare() error {
	policy := demoPolicy(t.origin.port)
	return errors.Join(
		put("The policy of the sandbox:\n\n%s\n", indent(policy)),
		os.WriteFile(t.path("policy.hcl"), []byte(policy), 0o600),
		os.WriteFile(t.path("origin-ca.pem"), t.origin.caPEM, 0o600),
		os.Mkdir(t.path("state"), 0o700),
	)
}

func (t *tour) path(name string) string { return filepath.Join(t.dir, name) }

// step runs one attempt in a sandbox of its own and checks its outcome.
func (t *tour) step(ctx context.Context, n int, s demoStep) error {
	t.origin.forget()
	args := []string{"run", "--quiet", "--policy", t.path("policy.hcl"), "--state", t.path("state"), "--ca-file", t.path("origin-ca.pem")}
	for _, name := range demoHosts() {
		args = append(args, "--host", name+"=127.0.0.1")
	}
	args = append(args, "--", "sh", "-c", s.shell)
	cmd := demoCommandOf(ctx, args)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	runErr := cmd.Run()
	var ended *exec.ExitError
	if runErr != nil && !errors.As(runErr, &ended) {
		return runErr
	}
	events, err := t.newest(ctx)
	if err != nil {
		return errors.Join(err, errors.New(out.String()))
	}
	if err := t.show(n, s, out.String(), events); err != nil {
		return err
	}
	return s.check(out.String(), t.origin.received(), events)
}

// demoCommandOf is this program again. When the tour is stopped it gets the time
// to end its sandbox.
func demoCommandOf(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), "DEMO_REAL_KEY="+demoSecret)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the probe has a child of its own, which ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = demoEnd
	return cmd
}

// newest reads the log of the run that ended last.
func (t *tour) newest(ctx context.Context) ([]*audit.Event, error) {
	logs, err := filepath.Glob(filepath.Join(t.path("state"), "runs", "*", "audit"))
	if err != nil || len(logs) == 0 {
		return nil, errors.New("the sandbox was not started")
	}
	slices.Sort(logs)
	dir := logs[len(logs)-1]
	if _, err := audit.Verify(dir); err != nil {
		return nil, err
	}
	var out []*audit.Event
	for e, err := range audit.Read(ctx, []string{dir}, audit.Filter{}) {
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// show prints a step.
func (t *tour) show(n int, s demoStep, out string, events []*audit.Event) error {
	var b strings.Builder
	title := fmt.Sprintf("%d. %s", n, s.title)
	if t.color {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	fmt.Fprintf(&b, "\n%s\n   sandbox$ %s\n%s", title, s.shell, indent(strings.TrimSpace(out)+"\n"))
	if got := t.origin.received(); len(got) > 0 {
		fmt.Fprintf(&b, "   origin received  Authorization: %s\n", strings.Join(got, ", "))
	} else {
		b.WriteString("   origin received  nothing\n")
	}
	for _, e := range events {
		if e.Phase == audit.PhaseDecision && (e.Kind == s.kind || e.Verdict == "deny") {
			b.WriteString("   audit  ")
			audit.Compact(&b, e, t.color)
		}
	}
	return put("%s", b.String())
}

// check compares what happened with what must.
func (s demoStep) check(out string, received []string, events []*audit.Event) error {
	for _, want := range s.sees {
		if !strings.Contains(out, want) {
			return fmt.Errorf("the sandbox did not see %q", want)
		}
	}
	for _, no := range append(s.never, demoSecret) {
		if strings.Contains(out, no) {
			return fmt.Errorf("the sandbox saw %q", no)
		}
	}
	switch {
	case s.received == "" && len(received) > 0:
		return fmt.Errorf("the origin received a request with %q", received)
	case s.received != "" && !slices.Equal(received, []string{s.received}):
		return fmt.Errorf("the origin received %q, not %q", received, s.received)
	}
	found := slices.ContainsFunc(events, func(e *audit.Event) bool {
		return e.Phase == audit.PhaseDecision && e.Kind == s.kind && e.Reason == s.reason
	})
	if !found {
		return fmt.Errorf("the audit log has no %s decision with the reason %s", s.kind, s.reason)
	}
	return nil
}

func indent(s string) string {
	return "     " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n     ") + "\n"
}
