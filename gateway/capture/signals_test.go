//go:build linux

package capture

import (
	"os"
	"syscall"
	"testing"
)

// TestNoSignalOfASuspensionIsLate: the SIGCONT that ends a suspension is seen
// by those that pass signals on while the command still counts as suspended. A
// later one would continue a command that has stopped again, without the
// terminal.
func TestNoSignalOfASuspensionIsLate(t *testing.T) {
	for range 200 {
		ours, file, err := newLinkPair()
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := newLink(file)
		if err != nil {
			t.Fatal(err)
		}
		s := &Sandbox{link: ours}
		signals := Signals{caught: make(chan os.Signal, 4)}
		s.suspended.Store(true)
		stop := s.Forward(signals)
		signals.caught <- syscall.SIGCONT
		s.forwarder.Load().settle()
		s.suspended.Store(false)
		signals.caught <- syscall.SIGWINCH
		if m, err := theirs.receive(); err != nil || m.Kind != kindSignal || m.Signal != syscall.SIGWINCH {
			t.Fatalf("the command was sent %v %v: %v", m.Kind, m.Signal, err)
		}
		stop()
		s.forwarder.Load().settle() // returns: nothing is passed on any more
		_ = ours.close()
		_ = theirs.close()
	}
}
