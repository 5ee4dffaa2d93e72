//go:build linux

package lab

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// StartTime bounds how long a gateway, or the command of a run, may take to
// be there.
const StartTime = startTime

// Background is a run that goes on beside the test.
type Background struct {
	*Run
	stdout, stderr strings.Builder
	ended          chan struct{}
}

// Begin starts a run and does not wait for it. It is ended with the test.
func (l *Lab) Begin(t testing.TB, o RunOptions) *Background {
	t.Helper()
	r, err := l.prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	b := &Background{Run: r, ended: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = &b.stdout, &b.stderr
	r.cmd.WaitDelay = time.Second
	if err := l.GW.Start(r.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait() // how it ended is asked with Wait
		close(b.ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-b.ended:
		case <-time.After(startTime):
			_ = r.cmd.Process.Kill()
			<-b.ended
		}
	})
	return b
}

// Dir is the folder in which the run's command begins.
func (r *Run) Dir() string { return r.cmd.Dir }

// PID is the gateway's process.
func (b *Background) PID() int { return b.cmd.Process.Pid }

// Kill sends the gateway of the run a signal.
func (b *Background) Kill(s syscall.Signal) error { return b.cmd.Process.Signal(s) }

// Wait waits for the end of the run and returns what it did.
func (b *Background) Wait(t testing.TB) Result {
	t.Helper()
	select {
	case <-b.ended:
	case <-time.After(2 * startTime):
		t.Fatal("the run has not ended")
	}
	b.Result = Result{Stdout: b.stdout.String(), Stderr: b.stderr.String(), Code: b.cmd.ProcessState.ExitCode()}
	return b.Result
}

// Namespace is the network of the run's command, which must be a sleep, for
// one test.
func (b *Background) Namespace(t testing.TB, l *Lab) *Namespace {
	t.Helper()
	n, err := l.inside(b.PID(), b.ended)
	if err != nil {
		t.Fatalf("%v\n%s", err, &b.stderr)
	}
	t.Cleanup(func() {
		if err := n.leave(); err != nil {
			t.Error(err)
		}
	})
	return n
}
