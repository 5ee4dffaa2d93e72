//go:build linux

package audit_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/audit/webhook"
	"sallyport/test/lab"
)

// flaky is a receiver that dies and comes back, and breaks off in the middle
// of what it takes.
type flaky struct {
	mu    sync.Mutex
	got   map[string]int // notices accepted, by host
	tried map[string]int // attempts, by host
	srv   *http.Server
}

// patience is how often a receiver fails a notice: the sender waits twice as long
// after each failure in a row.
const patience = 3

// ServeHTTP takes a notice, or breaks off before or after it was taken.
func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a audit.Alert
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || a.Event == nil {
		http.Error(w, "no notice", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.tried[a.Event.Host]++
	fail := f.tried[a.Event.Host] <= patience
	f.mu.Unlock()
	luck := 12
	if fail {
		luck = rand.N(luck)
	}
	switch luck {
	case 0:
		panic(http.ErrAbortHandler)
	case 1:
		http.Error(w, "try later", http.StatusServiceUnavailable)
		return
	}
	f.mu.Lock()
	f.got[a.Event.Host]++
	f.mu.Unlock()
	if fail && rand.N(10) == 0 {
		panic(http.ErrAbortHandler) // taken, and the sender does not know
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *flaky) up(t *testing.T) {
	l, err := world.lab.GW.Listen("tcp", "127.0.0.1:8085")
	must(t, err)
	f.srv = &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	srv := f.srv
	go func() { _ = srv.Serve(l) }() // closed by down
}

func (f *flaky) down() { _ = f.srv.Close() }

func (f *flaky) missing(hosts []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return f.got[h] > 0 })
}

// TestDeliveryIsAtLeastOnce: receiver and gateway are killed again and again;
// of every denial that is in the log a notice arrives.
func TestDeliveryIsAtLeastOnce(t *testing.T) {
	l := begin(t)
	f := &flaky{got: map[string]int{}, tried: map[string]int{}}
	f.up(t)
	defer func() { f.down() }()
	g := l.Gateway(t, lab.GatewayOptions{Env: []string{"SIGN=" + signingKey}, Policy: denied(`webhook {
    url         = "http://127.0.0.1:8085/"
    sign_secret = "SIGN_KEY"
  }`, secretBlock("SIGN_KEY", "alerts.test", "SIGN"))})
	s := g.Attach(t, "dev")
	for round := range 6 {
		for i := range 8 {
			// While the gateway is dead nobody answers; then the question was
			// not decided.
			_, _ = s.Ask(fmt.Sprintf("r%d-%d.evil.test", round, i), dns.TypeA)
		}
		switch round % 3 {
		case 0:
			f.down()
			time.Sleep(rand.N(300 * time.Millisecond))
			f.up(t)
		case 1:
			time.Sleep(rand.N(100 * time.Millisecond))
			must(t, g.Kill())
			must(t, g.Start())
		default:
			must(t, g.Kill())
			f.down()
			must(t, g.Start())
			time.Sleep(rand.N(300 * time.Millisecond))
			f.up(t)
		}
	}
	var hosts []string
	for e, err := range audit.Read(t.Context(), []string{g.State + "/audit"}, audit.Filter{Blocked: true}) {
		must(t, err)
		if e.Phase == audit.PhaseDecision {
			hosts = append(hosts, e.Host)
		}
	}
	if len(hosts) < 30 {
		t.Fatalf("only %d denials were recorded", len(hosts))
	}
	if !lab.Within(90*time.Second, func() bool { return len(f.missing(hosts)) == 0 }) {
		t.Errorf("no notice of %v", f.missing(hosts))
	}
}

// TestBrokenReceiverHoldsNothingUp: a receiver that takes connections and never
// answers is no reason for an attempt to wait.
func TestBrokenReceiverHoldsNothingUp(t *testing.T) {
	l := begin(t)
	ln, err := l.GW.Listen("tcp", "127.0.0.1:8086")
	must(t, err)
	defer ln.Close()
	g := l.Gateway(t, lab.GatewayOptions{Env: []string{"SIGN=" + signingKey}, Policy: denied(`webhook {
    url         = "http://127.0.0.1:8086/"
    sign_secret = "SIGN_KEY"
  }`, secretBlock("SIGN_KEY", "alerts.test", "SIGN"))})
	s := g.Attach(t, "dev")
	begun := time.Now()
	for i := range 200 {
		if _, err := s.Ask(fmt.Sprintf("n%d.evil.test", i), dns.TypeA); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("200 questions took %v", took)
	}
	// Each is made durable before it is told.
	eventually(t, "a notice of each", func() bool { return len(g.Events(audit.Filter{Kind: "alert"})) >= 200 })
}

// TestReceiverThatRefusesForGood: a notice that a receiver will never take is
// given up, with a record, and does not hold up the next.
func TestReceiverThatRefusesForGood(t *testing.T) {
	l := begin(t)
	b := &inbox{check: func(r *http.Request, body []byte) error {
		return webhook.Verify("another key", r.Header.Get(webhook.SignatureHeader), body, time.Now(), time.Minute)
	}}
	serve(t, "127.0.0.1:8087", b)
	g := l.Gateway(t, lab.GatewayOptions{Env: []string{"SIGN=" + signingKey}, Policy: denied(`webhook {
    url         = "http://127.0.0.1:8087/"
    sign_secret = "SIGN_KEY"
  }`, secretBlock("SIGN_KEY", "alerts.test", "SIGN"))})
	provoke(t, g)
	eventually(t, "two records of notices given up", func() bool {
		n := 0
		for _, e := range g.Events(audit.Filter{Kind: "audit"}) {
			if e.Note != nil && e.Note.Action == audit.ActionDropped && e.Severity == audit.High {
				n++
			}
		}
		return n == 2
	})
}
