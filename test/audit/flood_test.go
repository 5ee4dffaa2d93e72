//go:build linux

package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// memory is the resident memory of a process, in bytes.
func memory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return kb << 10
}

// cpuOf is the time of processors that a process has used.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	var user, system int64
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	must(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 everywhere
}

// latencies makes requests until stop and returns how long each took, sorted.
func latencies(t *testing.T, s *lab.Sandbox, url string, stop *atomic.Bool) []time.Duration {
	c := s.Client(t, false)
	var out []time.Duration
	for !stop.Load() || len(out) < 50 {
		begun := time.Now()
		if a, err := lab.Try(c, lab.NewRequest(t, "GET", url, "")); err != nil || a.Status != 200 {
			t.Errorf("the other sandbox: %d %s %v", a.Status, a.Reason(), err)
			return out
		}
		out = append(out, time.Since(begun))
	}
	slices.Sort(out)
	return out
}

func p99(d []time.Duration) time.Duration { return d[len(d)*99/100] }

// flooded is a gateway that has seen a flood by one sandbox.
type flooded struct {
	g            *lab.Gateway
	bad          *lab.Sandbox
	made         [2]int // what the flood has printed
	before, peak int    // memory
	quiet, busy  time.Duration
	used         time.Duration // of processors, by the gateway, in the time of the flood
}

// underFlood floods from one sandbox while another one works.
func underFlood(t *testing.T, name string) *flooded {
	l := world.lab // alone: it measures
	f := &flooded{g: l.Gateway(t, lab.GatewayOptions{Policy: one(`
sandbox "bad" {
  allow "flood.bad.test" {
    addresses = DOCS
    paths     = ["/open"]
  }
}
sandbox "good" {
  allow "flood.good.test" { addresses = DOCS }
}
`)})}
	bad, good := f.g.Attach(t, "bad"), f.g.Attach(t, "good")
	f.bad = bad
	const url = "https://flood.good.test/"
	var idle atomic.Bool
	time.AfterFunc(2*time.Second, func() { idle.Store(true) })
	f.quiet = p99(latencies(t, good, url, &idle))
	f.before = memory(t, f.g.PID())

	exe, err := os.Executable()
	must(t, err)
	// What the flood itself takes of the processors is not the gateway's doing.
	cmd := exec.Command("nice", "-n", "19", exe)
	cmd.Env = append(os.Environ(), flooder+"="+name)
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	used := cpuOf(t, f.g.PID())
	must(t, bad.NS.Start(cmd))
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var over atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() { f.busy = p99(latencies(t, good, url, &over)) })
	for waiting := true; waiting; {
		select {
		case err = <-done:
			waiting = false
		case <-time.After(100 * time.Millisecond):
		}
		f.peak = max(f.peak, memory(t, f.g.PID()))
	}
	f.used = cpuOf(t, f.g.PID()) - used
	over.Store(true)
	beside.Wait()
	if _, serr := fmt.Sscan(out.String(), &f.made[0], &f.made[1]); err != nil || serr != nil {
		t.Fatalf("the flood ended with %v and said %q\n%s", err, out.String(), problems.String())
	}
	return f
}

// told counts what the log tells of the flood: attempts of each kind, and
// records. What is folded comes within a second or two.
func (f *flooded) told(t *testing.T, enough func(attempts map[audit.Kind]int) bool) (attempts map[audit.Kind]int, records int) {
	lab.Within(15*time.Second, func() bool {
		time.Sleep(200 * time.Millisecond)
		attempts, records = map[audit.Kind]int{}, 0
		for e, err := range audit.Read(t.Context(), []string{f.g.State + "/audit"}, audit.Filter{Sandbox: "bad", Blocked: true}) {
			must(t, err)
			records++
			attempts[e.Kind] += int(max(e.Count, 1))
		}
		return enough(attempts)
	})
	return attempts, records
}

// hold holds what is so of every flood, with bounds that a slow machine keeps.
func (f *flooded) hold(t *testing.T, records int) {
	t.Helper()
	t.Logf("%d records; memory %d MiB, %d MiB at the most; %v of a processor; another sandbox's p99 %v, %v beside it",
		records, f.before>>20, f.peak>>20, f.used, f.quiet, f.busy)
	if grown := f.peak - f.before; grown > memoryFactor*128<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if f.busy > max(20*f.quiet, time.Second) {
		t.Errorf("another sandbox's p99 is %v, %v without the flood", f.busy, f.quiet)
	}
	chained(t, f.g.State+"/audit")
}

// TestFlood: a sandbox that floods with packets and questions is recorded with
// exact counts in few records, costs no memory, and is no matter to another
// sandbox.
func TestFlood(t *testing.T) {
	f := underFlood(t, "packets")
	packets, asked := f.made[0], f.made[1]
	got, records := f.told(t, func(n map[audit.Kind]int) bool { return n[audit.KindPacket] >= packets && n[audit.KindDNS] >= asked })
	t.Logf("%d packets and %d questions in %v", packets, asked, floodTime)
	if packets < floodRate/10 || asked < 100 { // a machine that others use gives it little
		t.Errorf("only %d packets and %d questions were sent", packets, asked)
	}
	if got[audit.KindPacket] != packets || got[audit.KindDNS] != asked {
		t.Errorf("%v are recorded; %d packets were sent and %d questions answered", got, packets, asked)
	}
	if n := refusedPackets(t, f.bad); n != packets {
		t.Errorf("the kernel has refused %d packets, %d are recorded", n, packets)
	}
	if records > 5000 {
		t.Errorf("%d records", records)
	}
	f.hold(t, records)
}

// refusedPackets is what the kernel has counted of refused packets in the
// sandbox's namespace.
func refusedPackets(t *testing.T, s *lab.Sandbox) (n int) {
	t.Helper()
	var out []byte
	must(t, s.NS.Do(func() (err error) {
		out, err = exec.Command("nft", "-j", "list", "counters").Output()
		return err
	}))
	var list struct {
		NFTables []struct {
			Counter *struct{ Packets int }
		}
	}
	must(t, json.Unmarshal(out, &list))
	for _, x := range list.NFTables {
		if x.Counter != nil {
			n += x.Counter.Packets
		}
	}
	return n
}

// TestFloodOfRequests: so is one that makes as many requests as it can, all of
// them refused.
func TestFloodOfRequests(t *testing.T) {
	f := underFlood(t, "requests")
	refused, unanswered := f.made[0], f.made[1]
	got, records := f.told(t, func(n map[audit.Kind]int) bool { return n[audit.KindHTTP] >= refused })
	t.Logf("%d requests refused in %v, and until all were answered", refused, floodTime)
	if refused < 200 {
		t.Errorf("only %d requests were refused", refused)
	}
	// What a machine that is too slow cuts off has been decided, but not answered.
	if n := got[audit.KindHTTP]; n < refused || unanswered == 0 && n != refused || n > refused+unanswered {
		t.Errorf("%v are recorded; %d were answered, and %d not", got, refused, unanswered)
	}
	if records > 15_000 { // a thousand a second are written each by itself
		t.Errorf("%d records", records)
	}
	f.hold(t, records)
}
