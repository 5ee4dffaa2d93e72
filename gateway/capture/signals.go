//go:build linux

package capture

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals are those that this process gets and that are for the command: to
// end, to stop, to continue, the window's size, and those of the user.
type Signals struct{ caught chan os.Signal }

// CatchSignals keeps them from this process, from now on. It is called before
// Start: none is lost between. One that was ignored when this process started
// (nohup) stays so, for the command too.
func CatchSignals() Signals {
	s := Signals{caught: make(chan os.Signal, 64)}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT} {
		if !signal.Ignored(sig) {
			signal.Notify(s.caught, sig)
		}
	}
	return s
}

// Release gives them back.
func (s Signals) Release() { signal.Stop(s.caught) }

// Forward passes what is caught to the command, which has started. stop ends
// that, and returns when it has ended.
func (s *Sandbox) Forward(signals Signals) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case sig := <-signals.caught:
				if sig == syscall.SIGCONT && s.suspended.Load() {
					continue // the command goes on once it has the terminal again
				}
				s.Signal(sig)
				if sig == syscall.SIGTERM || sig == syscall.SIGHUP {
					s.Signal(syscall.SIGCONT) // a command that is stopped must see it
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-gone
	}
}
