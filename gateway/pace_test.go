package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/policy"
)

// TestRefusalsArePaced: a sandbox that is refused more than anybody is on
// purpose gets its answers one after the other, over all its connections,
// while what it is allowed does not wait.
func TestRefusalsArePaced(t *testing.T) {
	const clients, each = 4, 300
	l := newLab(t)
	port, _ := recordHeads(t)
	l.allow("plain.test", port, func(r *policy.Rule) { r.Paths = []string{"/open"} })
	l.load()
	begun := time.Now()
	var wg sync.WaitGroup
	for range clients {
		c := l.raw(t, "plain.test", port)
		wg.Go(func() {
			say(t, c, strings.Repeat("GET /shut HTTP/1.1\r\nHost: plain.test\r\n\r\n", each))
			r := bufio.NewReader(c)
			for n := range each {
				resp, err := http.ReadResponse(r, nil)
				if err != nil || resp.StatusCode != http.StatusForbidden {
					t.Errorf("answer %d: %v %v", n, resp, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body) // a broken one is met by the next answer
			}
		})
	}
	wg.Wait()
	// Never much sooner, on any machine: the clock is read before the lock is
	// taken, so that some more may be given than should be.
	if took, least := time.Since(begun), time.Duration(clients*each-refusalBurst)*time.Second/refusalRate/2; took < least {
		t.Errorf("%d refusals within %v, want at least %v", clients*each, took, least)
	}
	if n := len(l.events(func(e *audit.Event) bool { return e.Reason == string(policy.PathNotAllowed) })); n != clients*each {
		t.Errorf("%d refusals are recorded, want %d", n, clients*each)
	}
	if w := l.g.state(l.sandbox.ID).refusal.waiting.Load(); w != 0 {
		t.Errorf("%d refusals still wait", w)
	}
	resp := readResponse(t, say(t, l.raw(t, "plain.test", port), "GET /open HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n"))
	if resp.StatusCode != http.StatusOK {
		t.Errorf("what is allowed: %s", resp.Status)
	}
}

// TestPaceGivesBack: who does not wait for a turn leaves none behind, in
// whatever order the waits end.
func TestPaceGivesBack(t *testing.T) {
	p := newPace()
	now := time.Now()
	for range refusalBurst {
		if d := p.reserve(now); d > 0 {
			t.Fatalf("a turn of the burst is due in %v", d)
		}
	}
	if d := p.reserve(now); d != refusalEvery {
		t.Errorf("the first turn behind the burst is due in %v", d)
	}
	const left = 20_000 // turns of ten seconds
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range left / 4 {
				p.wait(ctx)
			}
		})
	}
	wg.Wait()
	if d := p.reserve(time.Now()); d > 5*time.Second {
		t.Errorf("behind turns that nobody takes the next is due in %v", d)
	}
	if w := p.waiting.Load(); w != 0 {
		t.Errorf("%d still wait", w)
	}
}

// folds is a recorder that counts all denials in the record of the first.
type folds struct {
	Recorder
	first string
}

func (f *folds) Write(e *audit.Event) error {
	if e.Verdict == policy.Deny.String() && e.Kind == audit.KindHTTP {
		if f.first != "" {
			e.Req = f.first
			return nil
		}
		f.first = e.Req
	}
	return f.Recorder.Write(e)
}

// TestFoldedRefusalNamesItsRecord: the ID in an answer is that of a record,
// also when that one counts other requests too.
func TestFoldedRefusalNamesItsRecord(t *testing.T) {
	l := newLab(t)
	l.g.Audit = &folds{Recorder: l.g.Audit}
	port, _ := recordHeads(t)
	l.allow("plain.test", port, func(r *policy.Rule) { r.Paths = []string{"/open"} })
	l.load()
	var ids []string
	for n := range 3 {
		resp := readResponse(t, say(t, l.raw(t, "plain.test", port), fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n", n)))
		ids = append(ids, resp.Header.Get("X-Sallyport-Request"))
	}
	e := l.denied(t, audit.KindHTTP, policy.PathNotAllowed)
	for _, id := range ids {
		if id != e.Req {
			t.Errorf("answers name %v, the record is %s", ids, e.Req)
		}
	}
}
