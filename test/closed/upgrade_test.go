//go:build linux

package closed_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"

	"sallyport/test/lab"
)

// TestNothingLeavesDuringAnUpgrade: while the gateway ends in order and another
// program starts in its stead, everything is tried without a pause.
func TestNothingLeavesDuringAnUpgrade(t *testing.T) {
	l := lab.New(t)
	list := sandboxes(t, l)
	done := make(chan struct{})
	ended := make(chan int, len(list))
	for _, o := range list {
		go func() {
			tries := 0
			for {
				select {
				case <-done:
					ended <- tries
					return
				default:
					o.knock()
					tries++
				}
			}
		}()
	}
	program, err := os.ReadFile(l.Binary)
	must(t, err)
	l.Binary = filepath.Join(l.Dir, "newer")
	must(t, os.WriteFile(l.Binary, program, 0o755))
	for _, o := range list {
		must(t, o.g.Stop())
		must(t, o.g.Start())
	}
	close(done)
	for range list {
		if n := <-ended; n == 0 {
			t.Error("nothing was tried")
		}
	}
	for _, o := range list {
		if n := o.watch.Packets(t); n != 0 {
			t.Errorf("%s: %d packets arrived in the net", o.kind, n)
		}
		if !within(lab.StartTime, func() bool { _, err := o.s.Ask("sallyport.internal", dns.TypeA); return err == nil }) {
			t.Errorf("%s: no question is answered:\n%s", o.kind, o.g.Stderr())
		}
	}
}
