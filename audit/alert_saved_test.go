package audit

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// TestAlertCountsSurviveAKill: whenever the process is killed, every record
// counts once: what counted before the place that was saved, and what is read
// again from there.
func TestAlertCountsSurviveAKill(t *testing.T) {
	base := t.TempDir()
	state, err := OpenState(filepath.Join(base, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	l, err := Open(Options{Dir: filepath.Join(base, "audit")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	rules := []AlertRule{
		{Name: "all", Verdict: "deny", Interval: 300 * time.Millisecond, Window: time.Hour},
		{Name: "hosts", Verdict: "deny", Interval: time.Hour, Window: time.Hour, Per: []string{"host"}},
	}
	a, err := NewAlerts(AlertOptions{Rules: rules, State: state, Log: &memory{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := a.Open(ctx, l.o.Dir); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	written := 0
	var left []string // what kills leave of the state
	for kill := range 25 {
		for range 4 {
			write(t, l, fmt.Sprintf("h%d.test", written%3))
			written++
			time.Sleep(25 * time.Millisecond)
		}
		path := filepath.Join(base, fmt.Sprintf("left%d.db", kill))
		if err := state.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) }); err != nil {
			t.Fatal(err)
		}
		left = append(left, path)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if all, hosts := countedAfter(t, path, l.o.Dir, rules); all != uint64(written) || hosts != uint64(written) {
			t.Errorf("%s: %d and, by host, %d of %d records counted", filepath.Base(path), all, hosts, written)
		}
	}
}

// countedAfter is what two rules have counted when all of the log in dir is
// read from where the state at path says.
func countedAfter(t *testing.T, path, dir string, rules []AlertRule) (all, hosts uint64) {
	t.Helper()
	state, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	a, err := NewAlerts(AlertOptions{Rules: rules, State: state, Log: &memory{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	defer a.cursor.close()
	a.drain(t.Context(), a.cursor)
	for _, x := range a.Active() {
		if x.Name == "all" {
			all += x.Count
		} else {
			hosts += x.Count
		}
	}
	return all, hosts
}

// TestNoticesOfABurstAreSavedTogether: each name is used for the first time, and
// a write to the disk for each would take longer than what uses them.
func TestNoticesOfABurstAreSavedTogether(t *testing.T) {
	base := t.TempDir()
	state, err := OpenState(filepath.Join(base, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	l, err := Open(Options{Dir: filepath.Join(base, "audit")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	notices := &memory{}
	a, err := NewAlerts(AlertOptions{Rules: []AlertRule{{Name: "hosts", Verdict: "deny", Interval: time.Hour, Window: time.Hour, Per: []string{"host"}}}, State: state, Log: notices})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Open(t.Context(), l.o.Dir); err != nil {
		t.Fatal(err)
	}
	defer a.cursor.close()
	const names = 300
	for i := range names {
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	before := commits(t, state)
	a.drain(t.Context(), a.cursor)
	if n := len(notices.events); n != names {
		t.Errorf("%d notices of %d names", n, names)
	}
	if n := commits(t, state) - before; n > names/5 {
		t.Errorf("%d notices were saved with %d writes", names, n)
	}
	if n := len(a.Active()); n != names {
		t.Errorf("%d are active", n)
	}
}

// commits counts the changes of a state.
func commits(t *testing.T, s *State) (n int) {
	t.Helper()
	if err := s.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
