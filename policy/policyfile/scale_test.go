package policyfile

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/policy"
)

// scaleFiles is a policy of 100,000 rules and 10,000 sandboxes in a hundred
// files: groups of 90,000 rules and a rule of its own for each sandbox.
func scaleFiles() map[string][]byte {
	files := map[string][]byte{}
	var org strings.Builder
	org.WriteString("org {\n  use = [")
	for g := range 100 {
		fmt.Fprintf(&org, "%q, ", fmt.Sprintf("g%d", g))
	}
	org.WriteString("]\n  allow \"*.own.example.test\" {}\n}\n")
	files["org.hcl"] = []byte(org.String())
	for g := range 100 {
		var b strings.Builder
		fmt.Fprintf(&b, "group \"g%d\" {\n", g)
		for r := range 900 {
			fmt.Fprintf(&b, "  allow \"h%d-%d.example.test\" {\n    access = \"read\"\n    paths  = [\"/v1/**\"]\n  }\n", g, r)
		}
		b.WriteString("}\n")
		for s := range 100 {
			fmt.Fprintf(&b, "sandbox \"s%d-%d\" {\n  use = [\"g%d\", \"g%d\"]\n  allow \"a%d-%d.own.example.test\" { methods = [\"GET\"] }\n}\n", g, s, g, (g+s%99+1)%100, g, s)
		}
		files[fmt.Sprintf("g%02d.hcl", g)] = []byte(b.String())
	}
	return files
}

// TestScale holds the memory that a large policy takes to its target of 1 GiB.
// The time, 10 seconds, is a benchmark's matter (BenchmarkLoad): here its bound
// only tells a load whose cost grows with the square of the rules, with room
// for a slow machine and for the race detector, which takes ten times as long.
func TestScale(t *testing.T) {
	files := scaleFiles()
	debug.FreeOSMemory()
	began := cpu(t)
	set, diags := ParseSet(files, 1, testOptions())
	took := cpu(t) - began
	if set == nil {
		t.Fatal(diags.Err())
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d rules and %d sandboxes in %v of processor time; %d MiB from the system, resident at most %s", len(set.AllRules()), len(set.Sandboxes()), took, m.Sys>>20, peak())
	if n, k := len(set.AllRules()), len(set.Sandboxes()); n < 100_000 || k != 10_000 {
		t.Errorf("%d rules, %d sandboxes", n, k)
	}
	if took > 3*time.Minute {
		t.Errorf("loaded in %v of processor time", took)
	}
	if m.Sys > 1<<30 {
		t.Errorf("%d MiB were taken from the system", m.Sys>>20)
	}
	r := policy.Request{Sandbox: "s7-9", Stage: policy.StageRequest, Host: "h7-899.example.test", Port: 443, Scheme: policy.HTTPS, Method: "GET", Path: "/v1/x"}
	if d := set.Decide(r); d.Verdict != policy.Allow {
		t.Errorf("denied: %s", d.Message)
	}
	if n := testing.AllocsPerRun(100, func() { set.Decide(r) }); n != 0 {
		t.Errorf("%v allocations for a decision", n)
	}
}

// cpu is the processor time that the process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak is the resident memory of the process at its highest.
func peak() string {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func BenchmarkLoad(b *testing.B) {
	files := scaleFiles()
	b.ReportAllocs()
	for b.Loop() {
		if set, diags := ParseSet(files, 1, testOptions()); set == nil {
			b.Fatal(diags.Err())
		}
	}
}

func BenchmarkDecideInLargePolicy(b *testing.B) {
	set, diags := ParseSet(scaleFiles(), 1, testOptions())
	if set == nil {
		b.Fatal(diags.Err())
	}
	r := policy.Request{Sandbox: "s7-9", Stage: policy.StageRequest, Host: "h7-899.example.test", Port: 443, Scheme: policy.HTTPS, Method: "GET", Path: "/v1/x"}
	b.ReportAllocs()
	for b.Loop() {
		set.Decide(r)
	}
}

func BenchmarkDiff(b *testing.B) {
	files := scaleFiles()
	old, diags := ParseSet(files, 1, testOptions())
	if old == nil {
		b.Fatal(diags.Err())
	}
	files["g07.hcl"] = []byte(strings.Replace(string(files["g07.hcl"]), `access = "read"`, `access = "write"`, 1))
	next, diags := ParseSet(files, 2, testOptions())
	if next == nil {
		b.Fatal(diags.Err())
	}
	for b.Loop() {
		if len(policy.Diff(old, next, time.Unix(1, 0))) == 0 {
			b.Fatal("no change")
		}
	}
}
