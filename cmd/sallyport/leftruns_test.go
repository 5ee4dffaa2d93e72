package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
)

// openRun is the alerting of a run in a folder of its own.
func openRun(t *testing.T, dir string, policy ...string) *place {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	state, err := audit.OpenState(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), State: state})
	if err != nil {
		t.Fatal(err)
	}
	folder, err := audit.NewFolder(audit.FolderOptions{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	return &place{alerting: &alerting{state: state, log: l, folder: folder, dir: filepath.Join(dir, "audit"), logger: hclog.NewNullLogger(), grace: time.Minute,
		count: func(string, string) {}, owed: filepath.Join(dir, owedFile), policy: policy, others: true}}
}

// kill closes what the run stands on.
func (p *place) kill(t *testing.T) {
	t.Helper()
	if err := errors.Join(p.log.Close(), p.state.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNextRunFinishesOneThatWasKilled: what a run had logged and not told of
// when it was killed is told by the next one under the same policy, and by no
// other.
func TestNextRunFinishesOneThatWasKilled(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	rule := audit.AlertRule{Name: "denied", Verdict: "deny", Per: []string{"host"}, Notify: []string{"ops"}}
	killed := openRun(t, filepath.Join(runs, "01"), "/p.hcl")
	if err := errors.Join(killed.swap(setupOf(&receiver{down: true}, rule)), killed.owe()); err != nil {
		t.Fatal(err)
	}
	killed.stop() // what comes now is not evaluated
	for _, d := range killed.spools {
		d.stop()
	}
	killed.deny(t, "left.test")
	killed.kill(t)

	stranger, r := openRun(t, filepath.Join(runs, "02"), "/other.hcl"), &receiver{}
	if err := errors.Join(stranger.swap(setupOf(r, rule)), stranger.close()); err != nil {
		t.Fatal(err)
	}
	stranger.kill(t)
	if len(r.names()) > 0 {
		t.Errorf("a run under another policy told %v", r.names())
	}

	next := openRun(t, filepath.Join(runs, "03"), "/p.hcl")
	if err := errors.Join(next.swap(setupOf(r, rule)), next.close()); err != nil {
		t.Fatal(err)
	}
	next.kill(t)
	if !slices.Equal(r.names(), []string{"denied firing"}) || r.got[0].Event.Host != "left.test" {
		t.Errorf("told: %v", r.names())
	}
	if left, err := filepath.Glob(filepath.Join(runs, "*", owedFile)); err != nil || len(left) > 0 {
		t.Errorf("still owed: %v %v", left, err)
	}
}
