package audit

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// TestRetentionBesideTheSync: retention closes no file that is being synced.
func TestRetentionBesideTheSync(t *testing.T) {
	begun, goOn := make(chan bool), make(chan bool)
	var first atomic.Bool
	d := &badDisk{room: -1, syncs: func() {
		if first.CompareAndSwap(false, true) {
			close(begun)
			<-goOn
		}
	}}
	l := openBad(t, d, Options{SegmentBytes: 1 << 10, RetainBytes: 2 << 10, Interval: time.Hour})
	write(t, l, "first.test")
	done := make(chan bool)
	go func() { l.syncDirty(); close(done) }()
	<-begun
	for i := range 20 { // what is being synced is closed, and old
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	for end := time.Now().Add(200 * time.Millisecond); l.Stats().Removed == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	<-done
	if n := l.Stats().Faults; n != 0 {
		t.Errorf("%d faults: %v", n, l.Healthy())
	}
	eventually(t, "retention", func() bool { return l.Stats().Removed > 0 })
}
