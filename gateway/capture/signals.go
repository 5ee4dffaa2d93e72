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

// forwarder passes signals on in the order in which they were caught.
type forwarder struct {
	caught     chan os.Signal
	done, gone chan struct{} // closed to end it, and when it has ended
}

// passed is no signal: it is closed when all that were caught before it have
// been passed on.
type passed chan struct{}

func (passed) Signal()        {}
func (passed) String() string { return "passed" }

// Forward passes what is caught to the command, which has started. stop ends
// that, and returns when it has ended.
func (s *Sandbox) Forward(signals Signals) (stop func()) {
	f := &forwarder{caught: signals.caught, done: make(chan struct{}), gone: make(chan struct{})}
	s.forwarder.Store(f)
	go func() {
		defer close(f.gone)
		for {
			select {
			case sig := <-f.caught:
				s.forward(sig)
			case <-f.done:
				return
			}
		}
	}()
	return func() {
		close(f.done)
		<-f.gone
	}
}

func (s *Sandbox) forward(sig os.Signal) {
	switch sig {
	case syscall.SIGCONT:
		if s.suspended.Load() {
			return // the command goes on once it has the terminal again
		}
	case syscall.SIGTERM, syscall.SIGHUP:
		defer s.Signal(syscall.SIGCONT) // a command that is stopped must see it
	}
	if all, ok := sig.(passed); ok {
		close(all)
		return
	}
	s.Signal(sig)
}

// settle returns when all that has been caught is passed on, or nothing is any
// more. A signal that the command gets late may come when it has stopped again.
func (f *forwarder) settle() {
	if f == nil {
		return
	}
	all := make(passed)
	select {
	case f.caught <- all:
	case <-f.gone:
		return
	}
	select {
	case <-all:
	case <-f.gone:
	}
}
