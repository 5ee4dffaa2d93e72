//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// kills is how often the gateway is killed during traffic.
const kills = 50

// traffic is what goes on in one sandbox while its gateway is killed.
type traffic struct {
	s    *lab.Sandbox
	host string
	n    atomic.Int64
	seen atomic.Int64 // requests that were answered
}

// run sends requests, each with a path of its own, until ctx ends. Most
// fail.
func (tr *traffic) run(ctx context.Context, t *testing.T, h2 bool) {
	c := tr.s.Client(t, h2)
	c.Timeout = time.Second
	for ctx.Err() == nil {
		path := fmt.Sprintf("/live/%v/%d", h2, tr.n.Add(1))
		req := lab.NewRequest(t, "POST", "https://"+tr.host+path, "some body")
		if _, err := lab.Try(c, req.WithContext(ctx)); err == nil {
			tr.seen.Add(1)
		} else {
			time.Sleep(2 * time.Millisecond)
		}
		if rand.IntN(4) == 0 {
			c.CloseIdleConnections()
		}
	}
}

// dead makes attempts that must all fail.
func (tr *traffic) dead(t *testing.T, round int) {
	c := tr.s.Client(t, false)
	c.Timeout = 150 * time.Millisecond
	if a, err := lab.Try(c, lab.NewRequest(t, "GET", fmt.Sprintf("https://%s/dead/%d", tr.host, round), "")); err == nil {
		t.Errorf("round %d: got %d from a dead gateway", round, a.Status)
	}
}

// TestP5KillLosesNothing: the gateway is killed at random instants during
// traffic. While it is dead nothing leaves; no request that an origin saw is
// missing from the log; the chain verifies. NET-07, NET-08.
func TestP5KillLosesNothing(t *testing.T) {
	l := begin(t)
	policy := ""
	for i := range 3 {
		policy += fmt.Sprintf("sandbox \"k%[1]d\" {\n  allow \"k%[1]d.p5kill.test\" { addresses = DOCS }\n}\n", i)
	}
	g := l.Gateway(t, lab.GatewayOptions{Policy: one(policy)})
	var all []*traffic
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range 3 {
		tr := &traffic{s: g.Attach(t, fmt.Sprintf("k%d", i)), host: fmt.Sprintf("k%d.p5kill.test", i)}
		all = append(all, tr)
		for _, h2 := range []bool{false, true} {
			wg.Go(func() { tr.run(ctx, t, h2) })
		}
	}
	proves := func() bool {
		return !slices.ContainsFunc(all, func(tr *traffic) bool { return tr.seen.Load() < kills/2 })
	}
	// More rounds on a machine that is busy, where little comes through.
	for round := 0; round < kills || !proves() && round < 5*kills; round++ {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		must(t, g.Kill())
		var tries sync.WaitGroup
		for _, tr := range all {
			tries.Go(func() { tr.dead(t, round) })
		}
		tries.Wait()
		must(t, g.Start())
	}
	for _, tr := range all { // each has its network back
		if !lab.Within(lab.StartTime, func() bool {
			a, err := lab.Try(tr.s.Client(t, false), lab.NewRequest(t, "GET", "https://"+tr.host+"/live/end", ""))
			return err == nil && a.Status == 200
		}) {
			t.Errorf("%s has no network after the last start", tr.s.Name)
		}
	}
	cancel()
	wg.Wait()
	must(t, g.Stop())
	dir := filepath.Join(g.State, "audit")
	if r := verified(t, dir); r.Records < kills {
		t.Errorf("the log has only %d records", r.Records)
	}
	for _, tr := range all {
		recordedAll(t, dir, tr.host, kills/2)
	}
}

// recordedAll holds that every request that the origin of host saw is in the
// log as allowed, that none came from a dead gateway, and that there were
// enough to prove something.
func recordedAll(t *testing.T, dir, host string, enough int) {
	t.Helper()
	recorded := map[string]bool{}
	for e, err := range audit.Read(t.Context(), []string{dir}, audit.Filter{Host: host, Kind: "http"}) {
		must(t, err)
		if e.Phase == audit.PhaseDecision && e.Verdict == "allow" {
			recorded[e.HTTP.Path] = true
		}
	}
	saw := origin(host).Requests()
	if len(saw) < enough {
		t.Errorf("%s saw only %d requests", host, len(saw))
	}
	for _, q := range saw {
		if !recorded[q.Target] {
			t.Errorf("%s saw %s, which is not in the log", host, q.Target)
		}
		if strings.HasPrefix(q.Target, "/dead/") {
			t.Errorf("%s saw %s, which was sent while the gateway was dead", host, q.Target)
		}
	}
}

// TestP5KillOfARun: the same for the gateway of a run, whose command ends
// with it.
func TestP5KillOfARun(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			for round := range 3 {
				host := fmt.Sprintf("r%d-%s.p5run.test", round, user)
				b := l.Begin(t, withKey(uid, keyed("p5run.test"), "sh", "-c", `i=0; while :; do i=$((i+1)); curl -s -m 2 -o /dev/null https://`+host+`/live/$i; done`))
				if !lab.Within(lab.StartTime, func() bool { return len(origin(host).Requests()) > 3 }) {
					t.Fatal("no traffic")
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				must(t, b.Kill(syscall.SIGKILL))
				b.Wait(t)
				dirs, err := filepath.Glob(filepath.Join(b.State, "runs", "*", "audit"))
				if err != nil || len(dirs) != 1 {
					t.Fatalf("logs %q (%v)", dirs, err)
				}
				verified(t, dirs[0])
				recordedAll(t, dirs[0], host, 3)
			}
		})
	}
}
