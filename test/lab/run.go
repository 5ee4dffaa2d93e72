//go:build linux

package lab

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"sallyport/audit"
)

// Nobody is the ordinary user under whom sandboxes are run.
const Nobody = 65534

// RunOptions describe one `sallyport run`.
type RunOptions struct {
	UID     int    // of who runs it; 0 is root
	Policy  string // text
	Sandbox string
	Flags   []string
	Env     []string
	Argv    []string
	Stdin   string
	State   string // folder; default a new one
}

// Run is a `sallyport run` that has ended or is running.
type Run struct {
	Result
	State string
	cmd   *exec.Cmd
}

// prepare lays out the folders of a run.
func (l *Lab) prepare(o RunOptions) (*Run, error) {
	dir := filepath.Join(l.Dir, l.Unique("run"))
	r := &Run{State: o.State}
	if r.State == "" {
		r.State = filepath.Join(dir, "state")
	}
	policy := filepath.Join(dir, "policy.hcl")
	err := errors.Join(os.MkdirAll(r.State, 0o700), os.MkdirAll(filepath.Join(dir, "home"), 0o755), os.Chmod(dir, 0o755),
		os.Chown(r.State, o.UID, o.UID), os.Chown(filepath.Join(dir, "home"), o.UID, o.UID),
		os.WriteFile(policy, []byte(o.Policy), 0o644))
	if err != nil {
		return nil, err
	}
	args := []string{"run", "--policy", policy, "--state", r.State, "--resolver", Resolver + ":53", "--ca-file", l.CAFile}
	if o.Sandbox != "" {
		args = append(args, "--sandbox", o.Sandbox)
	}
	args = append(append(append(args, o.Flags...), "--"), o.Argv...)
	r.cmd = exec.Command(l.Binary, args...)
	r.cmd.Dir = filepath.Join(dir, "home")
	r.cmd.Env = append(append(os.Environ(), "HOME="+r.cmd.Dir), o.Env...)
	if o.UID != 0 {
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.UID)}}
	}
	if o.Stdin != "" {
		r.cmd.Stdin = strings.NewReader(o.Stdin)
	}
	return r, nil
}

// Run runs a command in a sandbox of its own, on the gateway's host, and waits
// for it.
func (l *Lab) Run(t testing.TB, o RunOptions) *Run {
	t.Helper()
	r, err := l.prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Result = runIn(t, l.GW, r.cmd)
	return r
}

// Events returns what the run has recorded.
func (r *Run) Events(t testing.TB) []*audit.Event {
	t.Helper()
	var out []*audit.Event
	for e, err := range audit.Read(t.Context(), []string{filepath.Join(r.State, "runs", "*", "audit")}, audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// Decisions returns the run's decisions, each as Line does.
func (r *Run) Decisions(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, e := range r.Events(t) {
		if e.Phase == audit.PhaseDecision {
			out = append(out, Line(e))
		}
	}
	return out
}

// RunSandbox is a sandbox of `sallyport run` that is held open for one test.
func (l *Lab) RunSandbox(t testing.TB, o RunOptions) *Sandbox {
	t.Helper()
	o.Argv = []string{"sleep", "600"}
	r, err := l.prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	r.cmd.Stderr = &stderr
	if err := l.GW.Start(r.cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = r.cmd.Wait() // killed below
		close(ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	})
	ns, err := l.inside(r.cmd.Process.Pid, ended)
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	s := &Sandbox{Lab: l, Name: o.Sandbox, NS: ns, Roots: x509.NewCertPool()}
	pem, err := os.ReadFile(filepath.Join(r.State, "ca.pem"))
	if err != nil || !s.Roots.AppendCertsFromPEM(pem) {
		t.Fatalf("the run's authority: %v", err)
	}
	logs, err := filepath.Glob(filepath.Join(r.State, "runs", "*", "audit"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("the run has %d logs: %v", len(logs), err)
	}
	s.log = follow(logs[0])
	t.Cleanup(func() {
		s.log.stop()
		if err := ns.leave(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// inside waits until the run's command has started, and returns its network.
func (l *Lab) inside(pid int, ended chan struct{}) (*Namespace, error) {
	deadline := time.Now().Add(startTime)
	for time.Now().Before(deadline) {
		if p := commandBelow(pid, "sleep"); p > 0 {
			return l.namespaceOf(p)
		}
		select {
		case <-ended:
			return nil, errors.New("the run ended at once")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil, errors.New("the run's command did not start")
}

// NamespaceOf is the network namespace of a process, for one test. It is held
// also when the process has ended.
func (l *Lab) NamespaceOf(t testing.TB, pid int) *Namespace {
	t.Helper()
	n, err := l.namespaceOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	return l.held(t, n)
}

// NamespaceAt is a network namespace that is mounted, for one test.
func (l *Lab) NamespaceAt(t testing.TB, path string) *Namespace {
	t.Helper()
	h, err := netns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	return l.held(t, &Namespace{Name: path, handle: h, home: l.home})
}

// held lets go of a namespace of somebody else after the test.
func (l *Lab) held(t testing.TB, n *Namespace) *Namespace {
	if n.jobs == nil {
		n.startWorker()
	}
	t.Cleanup(func() {
		if err := n.leave(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (l *Lab) namespaceOf(pid int) (*Namespace, error) {
	h, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, err
	}
	n := &Namespace{Name: fmt.Sprintf("of process %d", pid), handle: h, home: l.home}
	n.startWorker()
	return n, nil
}

// leave closes a namespace that somebody else made.
func (n *Namespace) leave() error {
	n.stopWorker()
	return n.handle.Close()
}

// commandBelow finds the process of a command among the descendants of pid.
func commandBelow(pid int, name string) int {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err == nil && strings.TrimSpace(string(comm)) == name {
		return pid
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well formed
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				if p := commandBelow(child, name); p > 0 {
					return p
				}
			}
		}
	}
	return 0
}
