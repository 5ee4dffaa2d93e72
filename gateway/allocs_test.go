package gateway

import (
	"bytes"
	"net"
	"testing"

	mdns "github.com/miekg/dns"

	"sallyport/gateway/dns"
	"sallyport/policy"
)

// TestRequestAllocations: what a request on a kept connection costs the
// gateway in allocations, with a swap, a policy and both records. Client and
// origin, which are counted with it, allocate nothing.
func TestRequestAllocations(t *testing.T) { atMost(t, 160, newLab(t).requests(t)) }

// BenchmarkRequest is the same in time, with that of client and origin.
func BenchmarkRequest(b *testing.B) {
	ask := newLab(b).requests(b)
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}

// requests returns what sends a request on a kept connection and reads its
// answer.
func (l *lab) requests(t testing.TB) func() {
	port := l.secured(t, answerEach)
	l.allow("api.test", port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	_, err := l.store.Get(t.Context(), secretName) // as the daemon does when it loads a policy
	must(t, err)
	l.load()
	c := l.rawTLS(t, "api.test", port, "http/1.1")
	ask := []byte("GET /small HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer $" + secretName + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	in := make([]byte, 4096)
	return func() {
		if _, err := c.Write(ask); err != nil {
			t.Fatal(err)
		}
		for got := 0; !bytes.HasSuffix(in[:got], []byte("\r\n\r\nok")); {
			k, err := c.Read(in[got:])
			if err != nil {
				t.Fatalf("%v after %q", err, in[:got])
			}
			got += k
		}
	}
}

// TestQuestionAllocations: what an allowed and a denied name cost, with their
// records.
func TestQuestionAllocations(t *testing.T) {
	l := newLab(t)
	l.allow("api.test", 443)
	l.load()
	for host, most := range map[string]float64{"api.test": 10, "evil.test": 12} {
		q := dns.Question{Name: host, Host: host, Type: mdns.TypeA, TypeName: "A", Transport: dns.TransportUDP}
		atMost(t, most, func() { l.g.question(l.sandbox, q) })
	}
}

// atMost holds what f costs. All of the process is counted, and now and then
// something else runs beside it, such as the index of the log: so the least of
// several measurements is what f costs.
func atMost(t *testing.T, most float64, f func()) {
	t.Helper()
	n := testing.AllocsPerRun(200, f)
	for range 4 {
		n = min(n, testing.AllocsPerRun(200, f))
	}
	t.Logf("%v allocations", n)
	if n > most {
		t.Errorf("%v allocations, want at most %v", n, most)
	}
}

// answerEach answers each request, in whatever it is sent.
func answerEach(c net.Conn) {
	defer c.Close()
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok")
	head, n := make([]byte, 8192), 0
	for {
		k, err := c.Read(head[n:])
		if err != nil {
			return
		}
		if n += k; !bytes.HasSuffix(head[:n], []byte("\r\n\r\n")) {
			continue
		}
		n = 0
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}
