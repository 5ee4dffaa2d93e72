//go:build linux

package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport/audit"
)

// eventLog is what a gateway has recorded, as it comes.
type eventLog struct {
	mu     sync.Mutex
	events []*audit.Event
	errs   []error
	cancel context.CancelFunc
	done   chan struct{}
}

// follow reads the log in dir until stop.
func follow(dir string) *eventLog {
	ctx, cancel := context.WithCancel(context.Background())
	l := &eventLog{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for e, err := range audit.Follow(ctx, []string{dir}, audit.Filter{}) {
			l.mu.Lock()
			if err != nil {
				l.errs = append(l.errs, err)
			} else {
				l.events = append(l.events, e)
			}
			l.mu.Unlock()
		}
	}()
	return l
}

func (l *eventLog) stop() {
	l.cancel()
	<-l.done
}

func (l *eventLog) list(keep func(*audit.Event) bool) []*audit.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*audit.Event
	for _, e := range l.events {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// Events returns what the gateway has recorded so far and f passes.
func (g *Gateway) Events(f audit.Filter) []*audit.Event { return g.log.list(f.Match) }

// Await waits until the gateway has recorded at least n events that f passes.
func (g *Gateway) Await(t testing.TB, n int, f audit.Filter) []*audit.Event {
	t.Helper()
	var out []*audit.Event
	if !within(waitEvents, func() bool { out = g.Events(f); return len(out) >= n }) {
		t.Fatalf("%d events of %+v were recorded, not %d:\n%s", len(out), f, n, lines(out))
	}
	return out
}

// waitEvents is how long an event may take to be read.
const waitEvents = 8 * time.Second

// settle is how long nothing more may come, for what must come once.
const settle = 25 * time.Millisecond

// within says whether f came true in time.
func within(wait time.Duration, f func() bool) bool {
	deadline := time.Now().Add(wait)
	for !f() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(3 * time.Millisecond)
	}
	return true
}

// Events returns what the gateway has recorded of the sandbox.
func (s *Sandbox) Events(f audit.Filter) []*audit.Event {
	return s.log.list(func(e *audit.Event) bool { return s.owns(e) && f.Match(e) })
}

func (s *Sandbox) owns(e *audit.Event) bool {
	return e.Sandbox != nil && (e.Sandbox.ID == s.ID || s.ID == "" && e.Sandbox.Name == s.Name)
}

// Decisions returns the sandbox's decisions.
func (s *Sandbox) Decisions() []*audit.Event {
	return s.log.list(func(e *audit.Event) bool { return s.owns(e) && e.Phase == audit.PhaseDecision })
}

// Line is a decision in the form that Expect compares: kind, verdict, reason
// and host.
func Line(e *audit.Event) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Kind, e.Verdict, e.Reason, e.Host))
}

func lines(events []*audit.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "  %s %s: %s (sni %q, authority %q)\n", e.Phase, Line(e), e.Message, e.SNI, e.Authority)
	}
	return b.String()
}

// Expect runs attempt and holds that the gateway recorded exactly these
// decisions about the sandbox in the meantime, in this order. It returns
// their events.
func (s *Sandbox) Expect(t testing.TB, want []string, attempt func()) []*audit.Event {
	t.Helper()
	before := len(s.Decisions())
	attempt()
	return s.Decided(t, before, want)
}

// Decided holds that since the sandbox had before decisions, exactly want
// were made.
func (s *Sandbox) Decided(t testing.TB, before int, want []string) []*audit.Event {
	t.Helper()
	within(waitEvents, func() bool { return len(s.Decisions()) >= before+len(want) })
	time.Sleep(settle)
	got := s.Decisions()[before:]
	var text []string
	for _, e := range got {
		text = append(text, Line(e))
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("decisions (-want +got):\n%s%s", diff, lines(got))
	}
	return got
}

// DecidedInAnyOrder is Decided for attempts that run at once.
func (s *Sandbox) DecidedInAnyOrder(t testing.TB, before int, want []string) {
	t.Helper()
	within(waitEvents, func() bool { return len(s.Decisions()) >= before+len(want) })
	time.Sleep(settle)
	var text []string
	for _, e := range s.Decisions()[before:] {
		text = append(text, Line(e))
	}
	slices.Sort(text)
	sorted := slices.Sorted(slices.Values(want))
	if diff := cmp.Diff(sorted, text); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}
