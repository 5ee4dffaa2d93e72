package main

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// manyNarrowed is how many sandboxes live at once in the benchmark.
const manyNarrowed = 10_000

// heap is what is in use after a collection, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkNarrowedSandboxes holds 10,000 narrowed sandboxes in one daemon and
// tells what each costs it, besides the sockets in its namespace.
func BenchmarkNarrowedSandboxes(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		d, stop := daemonAt(b, dir)
		before := heap()
		began := time.Now()
		ids := make([]string, manyNarrowed)
		numbers := make([]int, manyNarrowed)
		for i := range numbers {
			numbers[i] = i
		}
		inParallel(numbers, func(i int) {
			sb, err := d.captures.attach(attachment{Sandbox: "ci", NetNS: someNamespace,
				Narrow: &narrowed{Name: fmt.Sprintf("job-%d", i), Only: []string{"api.test"}, Methods: []string{"GET"}, Expires: time.Now().Add(time.Hour)}})
			if err != nil {
				b.Error(err)
				return
			}
			ids[i] = sb.ID
		})
		b.ReportMetric(float64(time.Since(began).Microseconds())/manyNarrowed, "µs/add")
		b.ReportMetric(float64(heap()-before)/manyNarrowed, "B/sandbox")
		began = time.Now()
		for _, id := range ids {
			if !allows(d, id, "GET", "api.test") || allows(d, id, "POST", "api.test") {
				b.Fatal("it is not narrowed to what was asked")
			}
		}
		b.ReportMetric(float64(time.Since(began).Nanoseconds())/manyNarrowed/2, "ns/decision")
		began = time.Now()
		d.captures.endGone()
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/look")
		var list []apiSandbox
		began = time.Now()
		if ask(b, d, http.MethodGet, "/v1/sandboxes", nil, &list); len(list) != manyNarrowed {
			b.Fatalf("%d are listed", len(list))
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/list")
		began = time.Now()
		if diags := d.reload(); diags.HasErrors() {
			b.Fatal(diags.Err())
		}
		d.captures.reconsider()
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/reload")
		stop()
		began = time.Now()
		d, stop = daemonAt(b, dir)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/restart")
		if n := len(d.sandboxes.List()); n != manyNarrowed {
			b.Fatalf("%d after a restart", n)
		}
		stop()
	}
}
