package audit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// sinkFunc makes a function a Sink.
type sinkFunc func(ctx context.Context, a Alert) error

func (f sinkFunc) Send(ctx context.Context, a Alert) error { return f(ctx, a) }

type spoolBench struct {
	state *State
	log   *memory
	mu    sync.Mutex
	got   []string
	fail  func(n int, a Alert) error
	calls int
}

func newSpoolBench(t *testing.T) *spoolBench {
	t.Helper()
	state, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	return &spoolBench{state: state, log: &memory{}}
}

func (b *spoolBench) Send(ctx context.Context, a Alert) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.fail != nil {
		if err := b.fail(b.calls, a); err != nil {
			return err
		}
	}
	b.got = append(b.got, a.ID)
	return nil
}

func (b *spoolBench) received() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.got)
}

// spool opens the spool and runs it until stop is called.
func (b *spoolBench) spool(t *testing.T, o SpoolOptions) (s *Spool, stop func()) {
	t.Helper()
	o.Name, o.Sink, o.State, o.Log = "ops", b, b.state, b.log
	o.RetryFirst, o.RetryMost = time.Millisecond, 4*time.Millisecond
	s, err := NewSpool(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func putAll(t *testing.T, s *Spool, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.Put(Alert{ID: id, Name: "a"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpoolDeliversInOrderAndRetries(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	b := newSpoolBench(t)
	b.fail = func(n int, a Alert) error {
		if n < 6 {
			return errors.New("down")
		}
		return nil
	}
	s, stop := b.spool(t, SpoolOptions{})
	putAll(t, s, "1", "2", "3")
	eventually(t, "delivery", func() bool { return s.Waiting() == 0 })
	stop()
	if b.received() != "[1 2 3]" {
		t.Errorf("received %s", b.received())
	}
	if sent, dropped, failed := s.Counts(); sent != 3 || dropped != 0 || failed != 5 {
		t.Errorf("counts %d %d %d", sent, dropped, failed)
	}
	if len(b.log.events) != 1 || b.log.events[0].Note.Action != ActionUndelivered {
		t.Errorf("%d events of failures", len(b.log.events))
	}
}

func TestSpoolSurvivesARestart(t *testing.T) {
	b := newSpoolBench(t)
	b.fail = func(int, Alert) error { return errors.New("down") }
	s, stop := b.spool(t, SpoolOptions{})
	putAll(t, s, "1", "2")
	eventually(t, "attempt", func() bool { _, _, failed := s.Counts(); return failed > 0 })
	if got := s.LastError(); got != "down" {
		t.Errorf("last error %q", got)
	}
	stop()
	if e := b.log.events[0]; !e.Alerting() {
		t.Errorf("a delivery that fails is no alert: %+v", e)
	}
	b.mu.Lock()
	b.fail = nil
	b.mu.Unlock()
	s, stop = b.spool(t, SpoolOptions{})
	putAll(t, s, "3")
	eventually(t, "delivery", func() bool { return s.Waiting() == 0 })
	if got := s.LastError(); got != "" {
		t.Errorf("last error %q after a delivery", got)
	}
	stop()
	if b.received() != "[1 2 3]" {
		t.Errorf("received %s", b.received())
	}
}

func TestSpoolGivesUp(t *testing.T) {
	b := newSpoolBench(t)
	b.fail = func(n int, a Alert) error {
		switch a.ID {
		case "permanent":
			return Permanent(errors.New("410"))
		case "panic":
			panic("sink")
		case "old":
			return errors.New("down")
		}
		return nil
	}
	c := newClock()
	s, stop := b.spool(t, SpoolOptions{Now: c.Now, MaxAge: time.Hour})
	putAll(t, s, "1", "permanent", "2", "panic", "3", "old")
	eventually(t, "delivery", func() bool { return s.Waiting() == 1 })
	c.step(2 * time.Hour)
	eventually(t, "giving up", func() bool { return s.Waiting() == 0 })
	stop()
	if b.received() != "[1 2 3]" {
		t.Errorf("received %s", b.received())
	}
	dropped := 0
	for _, e := range b.log.events {
		if e.Note.Action == ActionDropped {
			dropped++
		}
	}
	if dropped != 3 {
		t.Errorf("%d events of 3 dropped notices", dropped)
	}
}

func TestSpoolIsBounded(t *testing.T) {
	b := newSpoolBench(t)
	s, err := NewSpool(SpoolOptions{Name: "ops", Sink: b, State: b.state, Log: b.log, Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	putAll(t, s, "1", "2", "3")
	if err := s.Put(Alert{ID: "4"}); err == nil || !strings.Contains(err.Error(), "3 notices wait") {
		t.Errorf("a full spool: %v", err)
	}
	if len(b.log.events) != 1 || b.log.events[0].Note.Action != ActionDropped {
		t.Errorf("events %+v", b.log.events)
	}
}

func TestSpoolsNotify(t *testing.T) {
	b := newSpoolBench(t)
	s, stop := b.spool(t, SpoolOptions{})
	all := Spools{"ops": {s}}
	if err := all.Check([]AlertRule{{Name: "a", Notify: []string{"ops", "pager"}}}); err == nil || !strings.Contains(err.Error(), `"pager"`) {
		t.Errorf("check: %v", err)
	}
	if err := all.Check([]AlertRule{{Name: "a", Notify: []string{"ops"}}}); err != nil {
		t.Error(err)
	}
	all.Notify(Alert{ID: "1", Notify: []string{"ops", "pager"}})
	all.Notify(Alert{ID: "2"})
	eventually(t, "delivery", func() bool { return s.Waiting() == 0 })
	stop()
	if b.received() != "[1]" {
		t.Errorf("received %s", b.received())
	}
	if _, err := NewSpool(SpoolOptions{Name: "x", Sink: sinkFunc(nil)}); err == nil {
		t.Error("a spool without a state was made")
	}
}
