//go:build linux

package captures_test

import (
	"testing"
	"time"

	"sallyport/test/lab"
)

// How many sandboxes stand at rest in the test and in the benchmark.
const (
	someSandboxes = 40
	allSandboxes  = 200
)

// rest is what sandboxes cost a gateway, each, when nothing happens.
type rest struct {
	own, resident int64 // bytes
	files         float64
	attach        time.Duration // median
}

// atRest attaches namespaces to one daemon, asks a question and makes a request
// in each so that it has lived, and measures when the daemon has fallen quiet.
func atRest(t testing.TB, sandboxes int64) rest {
	t.Helper()
	l := lab.New(t)
	g, pid := plainGateway(t, l, lab.GatewayOptions{Policy: map[string]string{
		"p.hcl": l.MustPolicy(t, "sandbox \"rest\" {\n  allow \"rest.test\" { addresses = DOCS }\n}\n", "")}})
	use := func() {
		s := g.Attach(t, "rest")
		c, err := s.TLS("rest.test:443", nil)
		must(t, err)
		must(t, c.Close())
	}
	use() // so that what is made once is there
	// A gateway that falls quiet gives back what the handshakes left.
	settle := func() { time.Sleep(12 * time.Second) }
	settle()
	own, resident, files := memory(t, pid, "RssAnon"), memory(t, pid, "VmRSS"), descriptors(t, pid)
	var took []time.Duration
	for range sandboxes {
		began := time.Now()
		use()
		took = append(took, time.Since(began))
	}
	settle()
	return rest{own: (memory(t, pid, "RssAnon") - own) / sandboxes, resident: (memory(t, pid, "VmRSS") - resident) / sandboxes,
		files: float64(descriptors(t, pid)-files) / float64(sandboxes), attach: median(took)}
}

// TestMemoryAtRest: a sandbox at rest costs at most 1 MiB.
func TestMemoryAtRest(t *testing.T) {
	r := atRest(t, someSandboxes)
	t.Logf("each: %d KiB of its own, %d KiB resident, %.0f descriptors; attached and used in %v", r.own>>10, r.resident>>10, r.files, r.attach)
	if r.resident > 1<<20 {
		t.Errorf("a sandbox at rest costs %d KiB", r.resident>>10)
	}
}

// BenchmarkAtRest has the figures of 200.
func BenchmarkAtRest(b *testing.B) {
	for b.Loop() {
		r := atRest(b, allSandboxes)
		b.ReportMetric(float64(r.own)/1024, "KiB-own/sandbox")
		b.ReportMetric(float64(r.resident)/1024, "KiB-rss/sandbox")
		b.ReportMetric(r.files, "descriptors/sandbox")
	}
}
