//go:build linux

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	dir    string
	mu     sync.Mutex
	events []*audit.Event
	errs   []error
	cancel context.CancelFunc
	done   chan struct{}
}

// follow reads the log in dir until stop.
func follow(dir string) *eventLog {
	ctx, cancel := context.WithCancel(context.Background())
	l := &eventLog{dir: dir, cancel: cancel, done: make(chan struct{})}
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

// catchUp waits until what stands in the log now has been read.
func (l *eventLog) catchUp() {
	want := lastSeq(l.dir)
	Within(waitEvents, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := len(l.events)
		return n > 0 && l.events[n-1].Seq >= want || want == 0
	})
}

// tail is more than the longest record, in bytes.
const tail = 64 << 10

// lastSeq is the number of the last record in a log, 0 if there is none. A
// segment that was begun just now may have none yet.
func lastSeq(dir string) uint64 {
	segments, _ := filepath.Glob(filepath.Join(dir, "audit-*.jsonl")) // the pattern is well formed
	slices.Sort(segments)
	for _, name := range slices.Backward(segments) {
		if seq := lastIn(name); seq > 0 {
			return seq
		}
	}
	return 0
}

// lastIn is the number of the last record in a segment, 0 if there is none.
func lastIn(name string) uint64 {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		_, _ = f.Seek(-tail, io.SeekEnd) // else it is read from the start
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return 0
	}
	whole := b[:max(0, bytes.LastIndexByte(b, '\n'))]
	var e struct {
		Seq uint64 `json:"seq"`
	}
	if json.Unmarshal(whole[bytes.LastIndexByte(whole, '\n')+1:], &e) != nil {
		return 0
	}
	return e.Seq
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
	if !Within(waitEvents, func() bool { out = g.Events(f); return len(out) >= n }) {
		t.Fatalf("%d events of %+v were recorded, not %d:\n%s", len(out), f, n, lines(out))
	}
	return out
}

// waitEvents is how long an event may take to be recorded and read.
const waitEvents = 30 * time.Second

// settle is how long nothing more may come, for what must come once.
const settle = 25 * time.Millisecond

// Within says whether f came true in time.
func Within(wait time.Duration, f func() bool) bool {
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

// Mark is how many decisions were made about the sandbox until now.
func (s *Sandbox) Mark() int {
	s.log.catchUp()
	return len(s.Decisions())
}

// Expect runs attempt and holds that the gateway recorded exactly these
// decisions about the sandbox in the meantime, in this order. It returns
// their events.
func (s *Sandbox) Expect(t testing.TB, want []string, attempt func()) []*audit.Event {
	t.Helper()
	before := s.Mark()
	attempt()
	return s.Decided(t, before, want)
}

// Decided holds that since the sandbox had before decisions, exactly want
// were made.
func (s *Sandbox) Decided(t testing.TB, before int, want []string) []*audit.Event {
	t.Helper()
	Within(waitEvents, func() bool { return len(s.Decisions()) >= before+len(want) })
	time.Sleep(settle)
	s.log.catchUp()
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
	Within(waitEvents, func() bool { return len(s.Decisions()) >= before+len(want) })
	time.Sleep(settle)
	s.log.catchUp()
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
