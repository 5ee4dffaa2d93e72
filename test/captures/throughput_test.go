//go:build linux

package captures_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"sallyport/test/lab"
)

// number is that of the link.
const number = 88

// kinds are a sandbox of each kind of one daemon.
func kinds(t testing.TB) (l *lab.Lab, netns, link *lab.Sandbox) {
	t.Helper()
	l = lab.New(t)
	policy := fmt.Sprintf(`
sandbox "ns" {
  use = ["origin"]
}
sandbox "if" {
  match { cidrs = ["10.66.%d.0/24"] }
  use = ["origin"]
}
group "origin" {
  allow "bulk.test" { addresses = DOCS }
  tcp "raw.test:9" { addresses = DOCS }
}
`, number)
	g, _ := plainGateway(t, l, lab.GatewayOptions{Interfaces: []string{fmt.Sprintf("sb%d", number)},
		Policy: map[string]string{"p.hcl": l.MustPolicy(t, policy, "")}})
	return l, g.Attach(t, "ns"), g.Interface(t, "if", number)
}

// transfer is one way in which bytes go through a sandbox's gateway.
type transfer func(t testing.TB, s *lab.Sandbox, n int64)

func download(t testing.TB, s *lab.Sandbox, n int64) {
	c, err := s.TLS("bulk.test:443", nil)
	must(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "GET /lab/bytes?n=%d HTTP/1.1\r\nHost: bulk.test\r\nConnection: close\r\n\r\n", n)
	must(t, err)
	if got, err := io.Copy(io.Discard, c); got < n || err != nil {
		t.Fatalf("%d bytes came (%v)", got, err)
	}
}

func upload(t testing.TB, s *lab.Sandbox, n int64) {
	c, err := s.TLS("bulk.test:443", nil)
	must(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "POST /lab/count HTTP/1.1\r\nHost: bulk.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", n)
	must(t, err)
	_, err = io.CopyBuffer(struct{ io.Writer }{c}, io.LimitReader(zeros{}, n), make([]byte, 128<<10))
	must(t, err)
	if b, err := io.ReadAll(c); !strings.HasSuffix(strings.TrimSpace(string(b)), fmt.Sprintf("%d <nil>", n)) {
		t.Fatalf("the origin counted %q (%v)", b, err)
	}
}

// relay sends over a raw connection and waits until all has arrived.
func relay(t testing.TB, s *lab.Sandbox, n int64) {
	c, err := s.Dial("tcp", "raw.test:9")
	must(t, err)
	defer c.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{c}, io.LimitReader(zeros{}, n), make([]byte, 128<<10))
	must(t, err)
	must(t, c.(*net.TCPConn).CloseWrite())
	if b, err := io.ReadAll(c); string(b) != "all" {
		t.Fatalf("the peer said %q (%v)", b, err)
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// comparison is what rounds have shown: median rates, in bytes a second, and the
// median of what the rate on the interface was of that in the namespace, round
// by round.
type comparison struct{ netns, link, ratio float64 }

// compared moves n bytes through each kind in rounds, in turns.
func compared(t testing.TB, netns, link *lab.Sandbox, move transfer, n int64, rounds int) comparison {
	t.Helper()
	rate := func(s *lab.Sandbox) float64 {
		began := time.Now()
		move(t, s, n)
		return float64(n) / time.Since(began).Seconds()
	}
	rate(netns) // warms up
	rate(link)
	var of [3][]float64
	for round := range rounds {
		var a, b float64
		if round%2 == 0 {
			a, b = rate(netns), rate(link)
		} else {
			b, a = rate(link), rate(netns)
		}
		of[0], of[1], of[2] = append(of[0], a), append(of[1], b), append(of[2], b/a)
	}
	return comparison{netns: median(of[0]), link: median(of[1]), ratio: median(of[2])}
}

func moves() map[string]transfer {
	return map[string]transfer{"download": download, "upload": upload, "relay": relay}
}

// prepared are kinds with the raw peer.
func prepared(t testing.TB) (netns, link *lab.Sandbox) {
	l, netns, link := kinds(t)
	l.Peer(t, lab.Origin+":9", func(_ *lab.Peer, c *net.TCPConn) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, c, make([]byte, 128<<10)) // what came, the other end knows
		_, _ = io.WriteString(c, "all")
	})
	return netns, link
}

// TestThroughputOfKinds has a wide bound: the benchmark has the figures.
func TestThroughputOfKinds(t *testing.T) {
	netns, link := prepared(t)
	for name, move := range moves() {
		t.Run(name, func(t *testing.T) {
			c := compared(t, netns, link, move, 16<<20, 5)
			t.Logf("netns %.0f MB/s, interface %.0f MB/s, ratio %.2f", c.netns/1e6, c.link/1e6, c.ratio)
			if c.ratio < 0.25 {
				t.Errorf("the interface has %.2f of the namespace's rate", c.ratio)
			}
		})
	}
}

// BenchmarkThroughput moves 64 MiB in each of 41 rounds, in turns.
func BenchmarkThroughput(b *testing.B) {
	netns, link := prepared(b)
	for _, name := range []string{"download", "upload", "relay"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c := compared(b, netns, link, moves()[name], 64<<20, 41)
				b.ReportMetric(c.netns/1e6, "netns-MB/s")
				b.ReportMetric(c.link/1e6, "interface-MB/s")
				b.ReportMetric(100*c.ratio, "interface-%-of-netns")
			}
		})
	}
}
