//go:build linux

package capture

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reaped is one answer of wait4(2). pid 0: no process is left.
type reaped struct {
	pid    int
	status syscall.WaitStatus
}

// allProcesses is the pid that means every process of the sandbox but its first.
const allProcesses = -1

// reap waits for every child of this process, which is every orphan of the
// sandbox, until none is left.
func (c *child) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			c.reaped <- reaped{}
			return
		default:
			c.reaped <- reaped{pid: pid, status: status}
		}
	}
}

// loop obeys the launcher until the command and all that it left behind are
// gone, and reports how that went.
func (c *child) loop() error {
	var status syscall.WaitStatus
	var ending bool             // the launcher wants everything to end
	var killAt <-chan time.Time // when what is left of it is killed
	replaced := c.hidden.changes()
	for {
		select {
		case m, ok := <-c.orders:
			switch {
			case !ok: // launcher gone: leaving kills all
				return errors.New("launcher is gone")
			case m.Kind == kindEnd && !ending:
				ending, killAt = true, time.After(m.Grace)
				c.signalAll(syscall.SIGTERM)
			default:
				c.obey(m)
			}
		case <-killAt:
			c.signalAll(syscall.SIGKILL)
		case event := <-replaced:
			if err := c.hidden.again(event); err != nil {
				return errors.Join(err, c.link.send(failure(err)))
			}
		case r := <-c.reaped:
			switch {
			case r.pid == 0:
				return c.report(status)
			case r.pid != c.pid:
			case r.status.Stopped():
				m := message{Kind: kindStopped, Signal: r.status.StopSignal(), Holds: c.holdsTerminal()}
				if err := c.link.send(m); err != nil {
					return err
				}
			default:
				status, c.pid = r.status, 0
				if !ending {
					c.signalAll(syscall.SIGKILL)
				}
			}
		}
	}
}

func (c *child) obey(m message) {
	if c.pid == 0 {
		return
	}
	switch m.Kind {
	case kindSignal:
		c.signalCommand(m.Signal)
	case kindForeground:
		c.giveTerminal(c.pid)
		c.signalCommand(syscall.SIGCONT)
	}
}

// signalCommand signals the command, and its whole process group where a
// terminal would. A command that has joined the group of this process, which
// kill(2) cannot name, is signalled alone.
func (c *child) signalCommand(s syscall.Signal) {
	pid := c.pid
	switch s {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH:
		if group, err := syscall.Getpgid(c.pid); err == nil && group > 1 {
			pid = -group
		}
	}
	_ = syscall.Kill(pid, s) // an error: it is gone, which reap reports
}

// signalAll signals every process; stopped ones are continued, to take it.
func (c *child) signalAll(s syscall.Signal) {
	_ = syscall.Kill(allProcesses, s) // ESRCH: none is left
	if s != syscall.SIGKILL {
		_ = syscall.Kill(allProcesses, syscall.SIGCONT)
	}
}

// report sends how the command ended and what all processes used.
func (c *child) report(status syscall.WaitStatus) error {
	m := message{Kind: kindExited, Status: status}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err == nil {
		m.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		m.MaxRSS = int64(usage.Maxrss) * 1024 // KiB, getrusage(2)
	}
	return c.link.send(m)
}

// catchSignals takes every signal that could end or stop this process and
// drops it: what is meant for the command comes over the link. One that was
// ignored before stays ignored, because the command inherits that (nohup).
func catchSignals() {
	drop := make(chan os.Signal, 1)
	for s := syscall.Signal(1); s < unix.SIGSYS; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF,
			syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP:
			continue
		}
		if !signal.Ignored(s) {
			signal.Notify(drop, s)
		}
	}
}
