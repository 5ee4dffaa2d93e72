//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// overdue is how long after SIGKILL the first process may take to report.
const overdue = 3 * time.Second

var errGone = errors.New("sandbox: its first process was killed")

// receive passes on what the first process says, until it is gone.
func (s *Sandbox) receive() {
	defer close(s.messages)
	for {
		m, err := s.link.receive()
		if err != nil {
			return
		}
		select {
		case s.messages <- m:
		case <-s.closing:
			return
		}
	}
}

// Start runs the command. An *ExecError says that it cannot be run.
func (s *Sandbox) Start() error {
	s.terminal.hand(s.eager)
	if err := s.link.send(message{Kind: kindStart}); err != nil {
		return errGone
	}
	m, ok := <-s.messages
	switch {
	case !ok:
		return errGone
	case m.Kind == kindNoExec:
		return newExecError(s.name, m.Errno)
	case m.Kind != kindStarted:
		return m.err()
	}
	return nil
}

// Signal sends a signal to the command. One that is sent after its end is lost.
func (s *Sandbox) Signal(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		_ = s.link.send(message{Kind: kindSignal, Signal: number}) // an error: it is gone
	}
}

// End ends the sandbox: SIGTERM to every process, SIGKILL after Grace to what
// is left. Wait returns when nothing is.
func (s *Sandbox) End() {
	_ = s.link.send(message{Kind: kindEnd, Grace: Grace}) // an error: it has ended
}

// Wait waits until the command and everything it left behind have ended; what
// outlives the command is killed. While the command is stopped from the
// terminal this process stops too, as a shell's job does. An error means that
// there is no result.
func (s *Sandbox) Wait() (Result, error) {
	var timeout, late <-chan time.Time
	if s.timeout > 0 {
		timer := time.NewTimer(s.timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	var timedOut bool
	for {
		select {
		case <-timeout:
			timedOut = true
			s.End()
			late = time.After(Grace + overdue)
		case <-late:
			_ = s.process.Kill() // os.ErrProcessDone: receive tells
		case m, ok := <-s.messages:
			switch {
			case !ok:
				return Result{TimedOut: timedOut}, errors.Join(errGone, s.leaveTerminal(true))
			case m.Kind == kindStopped:
				if err := s.stopped(m); err != nil {
					return Result{}, err
				}
			case m.Kind == kindExited:
				r := m.result()
				r.TimedOut = timedOut
				return r, s.leaveTerminal(r.Signal != 0 || timedOut)
			default:
				return Result{}, m.err()
			}
		}
	}
}

func (m message) result() Result {
	r := Result{CPU: m.CPU, MaxRSS: m.MaxRSS, ExitCode: m.Status.ExitStatus()}
	if m.Status.Signaled() {
		r.Signal = m.Status.Signal()
		r.ExitCode = 128 + int(r.Signal)
	}
	return r
}

// stopped acts as job control wants it when the command was stopped.
func (s *Sandbox) stopped(m message) error {
	sig := m.Signal
	switch {
	case (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) && (m.Holds || s.terminal.mineSoon()):
		// It asked for the terminal, which is ours to give, or asked just before
		// it was given.
		s.terminal.hand(true)
		_ = s.link.send(message{Kind: kindForeground}) // an error: receive tells
		return nil
	case s.terminal.stoppable():
		had, err := s.terminal.takeBack()
		if err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		s.suspended.Store(true)
		err = s.terminal.suspend(had)
		s.forwarder.Load().settle() // with the SIGCONT that ended it
		s.suspended.Store(false)
		if err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		s.Signal(syscall.SIGCONT)
	case sig == syscall.SIGTSTP:
		s.Signal(syscall.SIGCONT) // no shell is there to continue it
	}
	return nil
}

// leaveTerminal takes the terminal back and, if the command was killed, its
// modes.
func (s *Sandbox) leaveTerminal(killed bool) error {
	if _, err := s.terminal.takeBack(); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	if killed {
		if err := s.terminal.restore(); err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
	}
	return nil
}

// Close ends whatever is left of the sandbox at once and closes its sockets.
// After it no process of the sandbox exists.
func (s *Sandbox) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		errs := []error{s.link.close()}
		if s.process != nil {
			_ = s.process.Kill() // os.ErrProcessDone after Wait
			<-s.ended
		}
		if s.sockets != nil {
			errs = append(errs, s.sockets.Close())
		}
		errs = append(errs, s.leaveTerminal(false), s.terminal.close())
		s.closeErr = errors.Join(errs...)
	})
	return s.closeErr
}
