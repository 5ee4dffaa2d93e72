package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	sched "runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// writeLarge writes a policy of 100,000 rules and 10,000 sandboxes to dir, and
// a sandbox for the traffic. salt tells one from another.
func writeLarge(b *testing.B, dir, salt string, port string) {
	b.Helper()
	writeTraffic(b, dir, salt, port)
	files := map[string]string{}
	for g := range 100 {
		var t strings.Builder
		fmt.Fprintf(&t, "group \"g%d\" {\n", g)
		for r := range 900 {
			fmt.Fprintf(&t, "  allow \"h%d-%d.%s.example.test\" {\n    access = \"read\"\n    paths  = [\"/v1/**\"]\n  }\n", g, r, salt)
		}
		t.WriteString("}\n")
		for s := range 100 {
			fmt.Fprintf(&t, "sandbox \"s%d-%d\" {\n  use = [\"g%d\", \"g%d\"]\n  allow \"a%d-%d.own.example.test\" { methods = [\"GET\"] }\n}\n", g, s, g, (g+s%99+1)%100, g, s)
		}
		files[fmt.Sprintf("g%02d.hcl", g)] = t.String()
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// writeTraffic writes the sandbox that the traffic is of.
func writeTraffic(b *testing.B, dir, salt, port string) {
	b.Helper()
	text := fmt.Sprintf(`sandbox "traffic" {
  use = ["g1", "g2"]
  allow "origin.test" {
    ports     = [%s]
    schemes   = ["http"]
    paths     = ["/%s", "/x"]
    addresses = ["127.0.0.0/8"]
  }
}
`, port, salt)
	if err := os.WriteFile(filepath.Join(dir, "traffic.hcl"), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// latencies are how long requests took.
type latencies struct {
	mu   sync.Mutex
	list []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	l.list = append(l.list, d)
	l.mu.Unlock()
}

// taken returns what was added since the last call, sorted.
func (l *latencies) taken() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.list
	l.list = nil
	slices.Sort(out)
	return out
}

// longestPauses counts how often, and about how long, the garbage collector
// has stopped everything.
func longestPauses() *sched.Float64Histogram {
	sample := []sched.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	sched.Read(sample)
	h := sample[0].Value.Float64Histogram()
	return &sched.Float64Histogram{Counts: slices.Clone(h.Counts), Buckets: slices.Clone(h.Buckets)}
}

// longestSince is the longest pause since the counts were taken.
func longestSince(before *sched.Float64Histogram) time.Duration {
	now := longestPauses()
	for i := len(now.Counts) - 1; i >= 0; i-- {
		if now.Counts[i] > before.Counts[i] {
			return time.Duration(now.Buckets[i] * float64(time.Second))
		}
	}
	return 0
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkReloadPause sends requests through a daemon while it reloads a
// policy of 100,000 rules and 10,000 sandboxes, of which one file or all files
// have changed, and tells how long the slowest took, beside those of as long a
// time without a reload.
func BenchmarkReloadPause(b *testing.B) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer origin.Close()
	_, port, err := net.SplitHostPort(origin.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	policyDir := filepath.Join(dir, "policy.d")
	if err := os.Mkdir(policyDir, 0o700); err != nil {
		b.Fatal(err)
	}
	writeLarge(b, policyDir, "a", port)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	config := filepath.Join(dir, "sallyport.hcl")
	text := fmt.Sprintf("state = %q\npolicy = [%q]\nlog { level = \"error\" }\ncontrol { socket = %q }\nupstream { hosts = { \"origin.test\" = [\"127.0.0.1\"] } }\n"+
		"capture \"p\" {\n  listen = %q\n  sandbox = \"traffic\"\n}\n", filepath.Join(dir, "state"), policyDir, filepath.Join(dir, "c.sock"), address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	d, err := (&serveFlags{config: config}).start()
	if err != nil {
		b.Fatal(err)
	}
	stop := background(hclog.NewNullLogger(), "gateway", func(ctx context.Context) error { return d.gateway.Run(ctx, time.Second) })
	d.captures.serve()
	defer func() {
		d.captures.close()
		stop()
		if err := d.close(); err != nil {
			b.Error(err)
		}
	}()
	proxy := &url.URL{Scheme: "http", Host: address, User: url.UserPassword("traffic", proxyPassword(d.loader.key, "traffic"))}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	var took latencies
	ctx, cancel := context.WithCancel(b.Context())
	var sending sync.WaitGroup
	for range 4 {
		sending.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				req, _ := http.NewRequest("GET", "http://origin.test:"+port+"/x", nil) // it is well-formed
				resp, err := client.Do(req)
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Error(resp, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				took.add(time.Since(began))
				time.Sleep(time.Millisecond)
			}
		})
	}
	defer sending.Wait()
	defer cancel()
	time.Sleep(time.Second)
	for _, change := range []struct {
		name string
		make func(salt string)
	}{
		{"one file", func(salt string) { writeTraffic(b, policyDir, salt, port) }},
		{"all files", func(salt string) { writeLarge(b, policyDir, salt, port) }},
	} {
		b.Run(change.name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				change.make(fmt.Sprint("r", time.Now().UnixNano()))
				took.taken()
				paused := longestPauses()
				began := time.Now()
				if diags := d.reload(); diags.HasErrors() {
					b.Fatal(diags.Err())
				}
				whole := time.Since(began)
				during := took.taken()
				b.ReportMetric(milli(longestSince(paused)), "ms-stopped")
				paused = longestPauses()
				time.Sleep(max(whole, time.Second))
				quiet := took.taken()
				b.ReportMetric(whole.Seconds(), "s/reload")
				b.ReportMetric(milli(longestSince(paused)), "ms-stopped-quiet")
				b.ReportMetric(milli(during[len(during)-1]), "ms-slowest")
				b.ReportMetric(milli(during[len(during)*999/1000]), "ms-p99.9")
				b.ReportMetric(milli(during[len(during)/2]), "ms-median")
				b.ReportMetric(milli(quiet[len(quiet)-1]), "ms-slowest-quiet")
				b.ReportMetric(milli(quiet[len(quiet)*999/1000]), "ms-p99.9-quiet")
				b.ReportMetric(milli(quiet[len(quiet)/2]), "ms-median-quiet")
			}
		})
	}
}
