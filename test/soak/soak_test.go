//go:build linux

package soak_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// policy is that of all sandboxes. DOCS and SECRETFILE are the lab's.
const policy = `
secret "API_KEY" {
  hosts   = ["api.soak.test"]
  headers = ["Authorization"]
  source "file" {
    path = "SECRETFILE"
  }
}
group "work" {
  allow "api.soak.test" {
    addresses = DOCS
    ports     = [7443]
    inject    = ["API_KEY"]
  }
  allow "data.soak.test" {
    addresses = DOCS
    ports     = [7443]
  }
  allow "fault.soak.test" {
    addresses = DOCS
    ports     = [7001, 7002, 7443]
  }
  allow "*.many.test" { addresses = DOCS }
}
sandbox "worker" {
  use = ["work"]
}
sandbox "linked" {
  match { cidrs = ["10.66.90.2/32", "fd66:90::2/128"] }
  use = ["work"]
}
sandbox "guest" {
  allow "data.soak.test" {
    addresses = DOCS
    ports     = [7443]
  }
}
`

// soak is one run of everything.
type soak struct {
	g      *lab.Gateway
	over   atomic.Bool  // the traffic is to end
	paused atomic.Bool  // and to wait
	busy   sync.RWMutex // held for reading by an attempt; the pause takes it
	secret *rotated     // what the secret is and was
	mu     sync.Mutex   // guards the rest
	counts map[string]int
	wrong  []string
}

// maxWrong bounds what is told of what went wrong, for each kind.
const maxWrong = 5

// note counts an attempt; err says what of it the plan does not explain.
func (s *soak) note(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[kind]++
	if err != nil {
		s.counts[kind+", wrong"]++
		if s.counts[kind+", wrong"] <= maxWrong {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %v", kind, err))
		}
	}
}

// loop attempts until the end, with a pause after each.
func (s *soak) loop(kind string, every time.Duration, attempt func(i int) error) {
	for i := 0; !s.over.Load(); {
		if !s.paused.Load() {
			s.busy.RLock()
			s.note(kind, attempt(i))
			s.busy.RUnlock()
			i++
		}
		time.Sleep(every)
	}
}

// rest pauses the traffic, waits until the gateway has nothing to do, and
// returns what it then holds.
func (s *soak) rest(t *testing.T) held {
	t.Helper()
	s.paused.Store(true)
	s.busy.Lock()
	defer func() { s.busy.Unlock(); s.paused.Store(false) }()
	return settled(t, s.g)
}

// TestSoak: after the traffic the gateway holds no more than it did when the
// traffic had just begun, and nothing went wrong that was not meant to.
func TestSoak(t *testing.T) {
	path, err := world.lab.SecretFile(valueOf(0))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("DOCS", lab.Documentation, "SECRETFILE", path).Replace(policy)
	g := world.lab.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": text}, Interfaces: []string{"sb*"}})
	s := &soak{g: g, counts: map[string]int{}, secret: &rotated{path: path}}
	serveOrigin(t, s.secret)
	serveFaults(t)
	var actors sync.WaitGroup
	for _, act := range s.actors(t, g.Attach(t, "worker"), g.Interface(t, "linked", 90)) {
		actors.Go(act)
	}
	warm := max(world.time/6, 20*time.Second)
	time.Sleep(warm)
	early := s.rest(t)
	began := time.Now()
	for time.Since(began) < world.time-warm {
		time.Sleep(time.Second)
		if h := holds(t, g); h.memory > maxMemory {
			t.Errorf("the gateway grew to %v", h)
			break
		}
	}
	late := s.rest(t)
	s.over.Store(true)
	actors.Wait()
	s.judge(t, early, late)
	s.audited(t)
}

// judge says what was attempted and what is wrong with it.
func (s *soak) judge(t *testing.T, early, late held) {
	var kinds []string
	for k := range s.counts {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		t.Logf("%7d %s", s.counts[k], k)
	}
	for _, w := range s.wrong {
		t.Error(w)
	}
	t.Logf("at rest after the beginning %v, after the end %v", early, late)
	if late.goroutines > early.goroutines+20 {
		t.Errorf("goroutines grew from %d to %d", early.goroutines, late.goroutines)
	}
	if late.descriptors > early.descriptors+20 {
		t.Errorf("descriptors grew from %d to %d", early.descriptors, late.descriptors)
	}
	// With room for the race detector, which remembers what it has seen.
	if late.memory > 2*early.memory+32<<20 {
		t.Errorf("memory grew from %d MiB to %d MiB", early.memory>>20, late.memory>>20)
	}
}

// slow is what no request of the plan takes, in milliseconds, on a machine
// that is busy with the traffic itself.
const slow = 15_000

// audited holds that the log is whole and that every request of the counted
// kinds has its one decision.
func (s *soak) audited(t *testing.T) {
	report, err := audit.Verify(s.g.State + "/audit")
	if err != nil {
		t.Errorf("the log does not verify: %v", err)
	}
	t.Logf("%d records in %d MiB of log", report.Records, report.Bytes>>20)
	counted := map[string]int{}
	for e, err := range audit.Read(t.Context(), []string{s.g.State + "/audit"}, audit.Filter{Kind: "http"}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Phase == audit.PhaseEnd && e.DurationMS > slow {
			t.Errorf("took %.0f ms, of which the gateway %.0f: %s %s %s", e.DurationMS, e.GatewayMS, e.HTTP.UserAgent, e.Host, e.HTTP.Path)
		}
		if e.Phase == audit.PhaseDecision && e.HTTP != nil {
			counted[e.HTTP.UserAgent] += int(max(e.Count, 1))
		}
	}
	for _, kind := range []string{kindWeb, kindUpload, kindRefused} {
		if counted[kind] != s.counts[kind] {
			t.Errorf("%s: %d attempts, %d decisions on record", kind, s.counts[kind], counted[kind])
		}
	}
}
