package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a Writer that keeps what it gets, and fails while it is told to.
type memory struct {
	mu     sync.Mutex
	events []*Event
	broken bool
}

func (m *memory) Write(e *Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return ErrUnavailable
	}
	m.events = append(m.events, e)
	return nil
}

func (m *memory) WriteAll(es []*Event) (errs []error) {
	for i, e := range es {
		errs = noteError(errs, len(es), i, m.Write(e))
	}
	return errs
}

func (m *memory) total() (n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		n += max(e.Count, 1)
	}
	return n
}

// list returns what came so far.
func (m *memory) list() []*Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

func newFolder(t *testing.T, o FolderOptions) *Folder {
	t.Helper()
	f, err := NewFolder(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFolderWritesTheFirstAndFoldsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f := newFolder(t, FolderOptions{Log: m})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		begin := time.Now()
		for range 1000 {
			if err := f.Write(denial("a.test")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Microsecond)
		}
		if n := len(m.list()); n != 3 {
			t.Errorf("%d events at once, want 3", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		all := m.list()
		if len(all) != 4 || all[3].Count != 997 {
			t.Fatalf("%d events, last %+v", len(all), all[len(all)-1])
		}
		e := all[3]
		if e.Host != "a.test" || !e.FirstSeen.Equal(begin.Add(300*time.Microsecond)) || !e.LastSeen.Equal(begin.Add(99900*time.Microsecond)) {
			t.Errorf("folded %s from %s to %s", e.Host, e.FirstSeen.Sub(begin), e.LastSeen.Sub(begin))
		}
		f.Write(denial("a.test"))
		if all := m.list(); len(all) != 5 || all[4].Count != 0 {
			t.Errorf("the next interval begins folded")
		}
		for range 5 {
			f.Write(denial("b.test"))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := m.total(); n != 1006 {
			t.Errorf("%d in all, want 1006", n)
		}
		if err := f.Write(denial("c.test")); !errors.Is(err, ErrClosed) {
			t.Errorf("write after the end: %v", err)
		}
	})
}

func TestFolderIsExactUnderAFloodOfNames(t *testing.T) {
	m := &memory{}
	f := newFolder(t, FolderOptions{Log: m, Interval: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	var sent atomic.Uint64
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 20_000 {
				e := denial(fmt.Sprintf("x%d-%d.exfil.test", w, i))
				if i%2 == 0 {
					e = &Event{Kind: KindPacket, Phase: PhaseDecision, Verdict: "deny", Reason: "udp_blocked", Proto: "udp", Dst: &Addr{IP: fmt.Sprintf("192.0.2.%d", i%250), Port: uint16(i)}, Count: 2}
				}
				if f.Write(e) == nil {
					sent.Add(max(e.Count, 1))
				}
				if i%1000 == 500 { // an interval is over, whatever time that took
					if err := f.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if m.total() != sent.Load() || sent.Load() != 120_000 {
		t.Errorf("%d recorded of %d", m.total(), sent.Load())
	}
	if n := len(m.events); n > 60_000 {
		t.Errorf("%d events for a flood", n)
	}
}

func TestFolderKeepsWhatTheLogDoesNotTake(t *testing.T) {
	m := &memory{}
	f := newFolder(t, FolderOptions{Log: m, Burst: 1})
	ok := 0
	for i := range 300 {
		m.broken = i > 50
		if f.Write(denial(fmt.Sprintf("h%d.test", i%10))) == nil {
			ok++
		}
		if i%60 == 59 {
			if err := f.Flush(); m.broken && i > 150 && !errors.Is(err, ErrUnavailable) {
				t.Errorf("flush: %v", err)
			}
		}
	}
	m.broken = false
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := m.total(); n != uint64(ok) {
		t.Errorf("%d recorded, %d accepted", n, ok)
	}
}

func TestFolderPassesTheRestThrough(t *testing.T) {
	m := &memory{}
	f := newFolder(t, FolderOptions{Log: m, Burst: 1})
	critical := denial("a.test")
	critical.Severity = Critical
	for _, e := range []*Event{
		{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "deny"}, {Kind: KindDNS, Phase: PhaseDecision, Verdict: "allow"},
		{Kind: KindDNS, Phase: PhaseEnd}, {Kind: KindConn, Phase: PhaseDecision, Verdict: "deny"}, critical,
	} {
		for range 10 {
			if err := f.Write(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(m.events) != 50 {
		t.Errorf("%d events, want 50", len(m.events))
	}
	if _, err := NewFolder(FolderOptions{}); err == nil {
		t.Error("a folder without a log was made")
	}
}

func TestFolderTellsSandboxesApart(t *testing.T) {
	m := &memory{}
	f := newFolder(t, FolderOptions{Log: m})
	for i := range 10_000 {
		f.Write(denial(fmt.Sprintf("h%d.test", i)))
	}
	other := denial("a.test")
	other.Sandbox = &Sandbox{Name: "other", ID: "2"}
	before := len(m.events)
	f.Write(other)
	if len(m.events) != before+1 {
		t.Error("the flood of one sandbox folds another's denial")
	}
	s := f.sandboxes[denial("").Sandbox.ID+"\x00ci"]
	if len(s.exact) != 256 || len(s.coarse) != 1 {
		t.Errorf("%d and %d keys kept", len(s.exact), len(s.coarse))
	}
}

func BenchmarkFolderFlood(b *testing.B) {
	f, err := NewFolder(FolderOptions{Log: &memory{broken: true}})
	if err != nil {
		b.Fatal(err)
	}
	e := denial("a.test")
	start := cpuTime()
	for b.Loop() {
		f.Write(e)
	}
	reportCPU(b, start)
}

func TestFolderIsBoundedWhileTheLogIsBroken(t *testing.T) {
	m := &memory{broken: true}
	f := newFolder(t, FolderOptions{Log: m, Burst: 1})
	accepted := uint64(0)
	for i := range 200 {
		for j := range 100 {
			for range 3 {
				if f.Write(denial(fmt.Sprintf("h%d-%d.test", i, j))) == nil {
					accepted++
				}
			}
		}
		f.Flush()
	}
	for _, s := range f.sandboxes {
		if len(s.exact) > 256 || len(s.coarse) > 2 {
			t.Errorf("%d and %d keys kept", len(s.exact), len(s.coarse))
		}
	}
	m.broken = false
	if err := f.Flush(); err != nil || m.total() != accepted {
		t.Errorf("%d recorded of %d, %v", m.total(), accepted, err)
	}
}

// TestFolderFoldsAFloodOfConnections: refused connections are written each by
// itself, until they are more than anybody makes on purpose.
func TestFolderFoldsAFloodOfConnections(t *testing.T) {
	m := &memory{}
	f := newFolder(t, FolderOptions{Log: m, Refused: 10})
	for range 1000 {
		e := &Event{Kind: KindConn, Phase: PhaseDecision, Verdict: "deny", Reason: "not_tls", Severity: Low, Host: "a.test", Port: 443}
		if err := f.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.list()); n != 10 {
		t.Errorf("%d connections were written each by itself, want 10", n)
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := len(m.list()); n != 11 || m.total() != 1000 {
		t.Errorf("%d records that stand for %d, want 11 for 1000", n, m.total())
	}
}
