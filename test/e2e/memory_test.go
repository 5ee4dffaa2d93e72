//go:build linux

package e2e_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport/test/lab"
)

// plainGateway is a daemon that was built without the race detector, whose
// memory is its own.
func plainGateway(t testing.TB, policy string) (g *lab.Gateway, pid int) {
	t.Helper()
	l := world.lab
	binary := filepath.Join(l.Dir, l.Unique("plain"))
	if out, err := exec.Command("go", "build", "-o", binary, "sallyport/cmd/sallyport").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	g = l.Gateway(t, lab.GatewayOptions{Policy: one(policy), More: "limits { sandbox_connections = 8192 }\n"})
	must(t, g.Stop())
	cmd := exec.Command(binary, "serve", "--config", filepath.Join(g.Dir, "sallyport.hcl"))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	must(t, l.GW.Start(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()
	})
	if !lab.Within(lab.StartTime, func() bool { _, err := g.Ready(); return err == nil }) {
		t.Fatal("the gateway is not ready")
	}
	return g, cmd.Process.Pid
}

// resident is the memory of a process, in bytes.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatalf("no memory in %s", b)
	return 0
}

const memoryPolicy = `
sandbox "m" {
  allow "memory.test" { addresses = DOCS }
}
`

// idleConnections opens n intercepted connections, makes one request on each,
// and returns by how much each has made the gateway grow, in bytes: as soon as
// that is few enough, if it gets so far.
func idleConnections(t testing.TB, n int, enough int64) int64 {
	t.Helper()
	g, pid := plainGateway(t, memoryPolicy)
	s := g.Attach(t, "m")
	open := func(count int) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 16)
		for range count {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				c, err := s.TLS("memory.test:443", nil)
				if err != nil {
					t.Error(err)
					return
				}
				w := lab.OnConn(t, c)
				if _, err := io.WriteString(c, "HEAD /lab/bytes?n=0 HTTP/1.1\r\nHost: memory.test\r\n\r\n"); err != nil {
					t.Error(err)
				}
				if _, err := w.TryAnswer("HEAD"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	open(50) // so that what is made once is there
	// A gateway that falls quiet gives back what the handshakes left.
	settle := func() int64 { time.Sleep(12 * time.Second); return resident(t, pid) }
	before := settle()
	open(n)
	each := (settle() - before) / int64(n)
	for end := time.Now().Add(patience); each > enough && time.Now().Before(end); time.Sleep(time.Second) {
		each = (resident(t, pid) - before) / int64(n) // a busy machine takes longer
	}
	return each
}

// transfer moves n bytes in a direction through the gateway and returns by
// how much the gateway grew at most, in bytes.
func transfer(t testing.TB, n int64, upload bool) int64 {
	t.Helper()
	g, pid := plainGateway(t, memoryPolicy)
	s := g.Attach(t, "m")
	c, err := s.TLS("memory.test:443", nil)
	must(t, err)
	defer c.Close()
	before, most := resident(t, pid), int64(0)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			most = max(most, resident(t, pid)-before)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	if upload {
		sendBytes(t, c, n)
	} else {
		receiveBytes(t, c, n)
	}
	close(done)
	watch.Wait()
	return most
}

func sendBytes(t testing.TB, c net.Conn, n int64) {
	t.Helper()
	_, err := fmt.Fprintf(c, "POST /lab/count HTTP/1.1\r\nHost: memory.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", n)
	must(t, err)
	_, err = io.Copy(c, io.LimitReader(zeros{}, n))
	must(t, err)
	if b, err := io.ReadAll(c); !strings.HasSuffix(strings.TrimSpace(string(b)), fmt.Sprintf("%d <nil>", n)) {
		t.Fatalf("the origin counted %q (%v)", b, err)
	}
}

func receiveBytes(t testing.TB, c net.Conn, n int64) {
	t.Helper()
	_, err := fmt.Fprintf(c, "GET /lab/bytes?n=%d HTTP/1.1\r\nHost: memory.test\r\nConnection: close\r\n\r\n", n)
	must(t, err)
	if got, err := io.Copy(io.Discard, c); got < n || err != nil {
		t.Fatalf("%d bytes came (%v)", got, err)
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Sizes of the tests; the benchmarks have the full ones.
const (
	someConnections = 300
	someBytes       = 512 << 20
)

// TestMemoryOfIdleConnections has a wide bound: the collector has not returned
// everything yet. The benchmark has the figure.
func TestMemoryOfIdleConnections(t *testing.T) {
	begin(t)
	const most = 128 << 10
	if each := idleConnections(t, someConnections, most); each > most {
		t.Errorf("an idle connection costs %d KiB", each>>10)
	}
}

// TestMemoryOfLargeBodies: what streams through is not kept.
func TestMemoryOfLargeBodies(t *testing.T) {
	for name, upload := range map[string]bool{"download": false, "upload": true} {
		t.Run(name, func(t *testing.T) {
			begin(t)
			if most := transfer(t, someBytes, upload); most > 64<<20 {
				t.Errorf("the gateway grew by %d MiB over %d MiB", most>>20, someBytes>>20)
			}
		})
	}
}

// BenchmarkIdleConnections holds 2,000 of them.
func BenchmarkIdleConnections(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(idleConnections(b, 2000, math.MaxInt64))/1024, "KiB/conn")
	}
}

// BenchmarkLargeBodies moves 4 GiB in each direction.
func BenchmarkLargeBodies(b *testing.B) {
	for name, upload := range map[string]bool{"download": false, "upload": true} {
		b.Run(name, func(b *testing.B) {
			const size = 4 << 30
			b.SetBytes(size)
			for b.Loop() {
				b.ReportMetric(float64(transfer(b, size, upload))/(1<<20), "MiB-grown")
			}
		})
	}
}
