package main

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/audit"
)

// TestProbeWaitsForRecords: an attempt whose record is written a moment later
// has one; one that has none is told, after a while.
func TestProbeWaitsForRecords(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		ok    bool
	}{"a moment later": {300 * time.Millisecond, true}, "never": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				all, err := awaitRecords(func() ([]probed, error) {
					return []probed{{probeResult: probeResult{Held: true}, OK: time.Since(began) >= test.after}}, nil
				})
				if err != nil || len(all) != 1 || all[0].OK != test.ok {
					t.Errorf("%+v %v", all, err)
				}
				if took := time.Since(began); took > 2*recordTime {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// TestProbeTakesItsOwnRecords: those of before it, and of another namespace of
// the same sandbox, are not its own.
func TestProbeTakesItsOwnRecords(t *testing.T) {
	state := t.TempDir()
	log, err := audit.Open(audit.Options{Dir: filepath.Join(state, "audit")})
	if err != nil {
		t.Fatal(err)
	}
	write := func(id string, kind audit.Kind, host, dst string) {
		e := &audit.Event{Kind: kind, Phase: audit.PhaseDecision, Verdict: "deny", Reason: "host_not_allowed", Host: host, Sandbox: &audit.Sandbox{Name: "ci", ID: id}}
		if dst != "" {
			e.Dst = &audit.Addr{IP: dst, Port: 443}
		}
		if err := log.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	write("before", audit.KindDNS, probeDoH, "")
	write("before", audit.KindPacket, "", probeAddr4)
	time.Sleep(2 * time.Millisecond)
	began := time.Now()
	write("other", audit.KindDNS, "c2vjcmv0-1."+probeName, "")
	write("other", audit.KindDNS, probeDoH, "")
	write("other", audit.KindPacket, "", probeAddr4)
	f := probeFlags{state: state, sandbox: "ci"}
	own := probeResult{Held: true, Name: "c2vjcmv0-2." + probeName}
	results := []probeResult{own, {Held: true, Name: probeDoH}, {Held: true, Dst: probeAddr4, Port: 443}}
	holds := func(want bool) {
		t.Helper()
		all, err := f.match(results, began)
		if err != nil || len(all) != len(results) {
			t.Fatalf("%v %v", all, err)
		}
		for _, p := range all {
			if p.OK != want || p.OK != (p.Record != "") {
				t.Errorf("%+v, want %v", p, want)
			}
		}
	}
	holds(false)
	write("mine", audit.KindDNS, own.Name, "")
	write("mine", audit.KindDNS, probeDoH, "")
	write("mine", audit.KindPacket, "", probeAddr4)
	holds(true)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestProbeWithoutAConnectionHeldNothing: who did not reach the proxy has tried
// nothing.
func TestProbeWithoutAConnectionHeldNothing(t *testing.T) {
	if r := (probeResult{}).seen(nil, errors.New("dial: connection refused")); r.Held {
		t.Errorf("%+v", r)
	}
}
