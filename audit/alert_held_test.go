package audit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// TestNoticesHeldInMemorySurviveAKill: an alert is saved as told of only when
// its notice is on disk, be it that the disk was full when it fired.
func TestNoticesHeldInMemorySurviveAKill(t *testing.T) { onSmallFileSystem(t, heldSurviveAKill) }

func heldSurviveAKill(t *testing.T, dir string) {
	state, err := OpenState(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	log := &memory{}
	sending := make(chan struct{}, 1)
	s, err := NewSpool(SpoolOptions{Name: "ops", State: state, Log: log, Timeout: time.Hour,
		Sink: sinkFunc(func(ctx context.Context, _ Alert) error {
			sending <- struct{}{}
			<-ctx.Done()
			return errors.New("down")
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	a, err := NewAlerts(AlertOptions{State: state, Log: log, Notify: Spools{"ops": {s}}.Notify,
		Rules: []AlertRule{{Name: "r", Verdict: "deny", Per: []string{"sandbox"}, Notify: []string{"ops"}}}})
	if err != nil {
		t.Fatal(err)
	}
	deny := func(name string) {
		e := denial("a.test")
		e.Sandbox, e.Time = &Sandbox{Name: name, ID: name}, time.Now()
		a.Observe(e)
	}
	kills := 0
	killed := func(want int) {
		t.Helper()
		kills++
		alerts, notices := leftBy(t, state, filepath.Join(t.TempDir(), fmt.Sprintf("left%d.db", kills)))
		if alerts > notices || alerts < want {
			t.Errorf("kill %d leaves %d alerts that are told of and %d notices that wait; want %d or more, and a notice of each", kills, alerts, notices, want)
		}
	}
	deny("first")
	<-sending
	killed(1)
	free := fillDisk(t, dir)
	for i := range 8 {
		deny(fmt.Sprint("sb", i))
	}
	s.mu.Lock()
	held := len(s.held)
	s.mu.Unlock()
	if held == 0 {
		t.Fatal("nothing is held in memory")
	}
	a.Tick()
	killed(1)
	free()
	a.Tick()
	killed(9)
	deny("last")
	killed(10)
}

// leftBy counts what a kill leaves in a state: the alerts that are told of, and
// the notices that wait.
func leftBy(t *testing.T, state *State, path string) (alerts, notices int) {
	t.Helper()
	if err := state.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) }); err != nil {
		t.Fatal(err)
	}
	left, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	for bucket, n := range map[string]*int{alertBucket: &alerts, "spool/ops": &notices} {
		if err := left.ForEach(bucket, func(_, _ []byte) error { *n++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return alerts, notices
}
