//go:build linux

package load

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// server is an origin that counts what it is asked.
func server(t *testing.T) (s *httptest.Server, asked *atomic.Int64, roots string) {
	t.Helper()
	asked = new(atomic.Int64)
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Bench") != "yes" {
			http.Error(w, "the header is missing", http.StatusBadRequest)
			return
		}
		asked.Add(1)
		fmt.Fprintln(w, "small", r.Host)
	})
	mux.HandleFunc("/chunks", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		for range 3 {
			fmt.Fprint(w, strings.Repeat("x", 5000))
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.FormValue("n"))
		_, _ = io.WriteString(w, strings.Repeat("b", n))
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n)
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			fmt.Fprintf(w, "data: %d\n\n", time.Now().UnixNano())
			w.(http.Flusher).Flush()
		}
	})
	s = httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	s.StartTLS()
	t.Cleanup(s.Close)
	roots = filepath.Join(t.TempDir(), "roots.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(roots, cert, 0o644); err != nil {
		t.Fatal(err)
	}
	return s, asked, roots
}

// do has one job done by a client, as the benchmark does.
func do(t *testing.T, j Job) Result {
	t.Helper()
	line, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	go func() {
		_ = in.CloseWithError(Serve(strings.NewReader(string(line)+"\ngo\nend\n"), in)) // what is wrong shows below
	}()
	lines := bufio.NewScanner(out)
	var r Result
	for i := range 2 {
		r = Result{}
		if !lines.Scan() {
			t.Fatalf("no line %d: %v", i, lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Ready != (i == 0) {
			t.Fatalf("line %d: %s %v", i, lines.Text(), err)
		}
	}
	return r
}

// TestJobs: each kind does what it is for, and counts it.
func TestJobs(t *testing.T) {
	s, asked, roots := server(t)
	target := Target{Mode: ByAddress, Address: s.Listener.Addr().String()}
	const short = 200 * time.Millisecond
	for name, c := range map[string]struct {
		job Job
		ops int // at least
	}{
		"kept":      {Job{Kind: KeepAlive, Path: "/small", Conns: 3, Time: short}, 3},
		"chunks":    {Job{Kind: KeepAlive, Path: "/chunks", Conns: 2, Time: short}, 2},
		"new":       {Job{Kind: NewConn, Path: "/small", Conns: 2, Count: 7}, 7},
		"new names": {Job{Kind: NewName, Path: "/small", Conns: 2, Count: 5}, 5},
		"paced":     {Job{Kind: Paced, Path: "/small", Rate: 100, Time: short}, 10},
		"download":  {Job{Kind: Download, Path: "/bytes", Bytes: 300_000}, 1},
		"upload":    {Job{Kind: Upload, Path: "/upload", Bytes: 300_000}, 1},
		"idle":      {Job{Kind: Idle, Path: "/small", Count: 9}, 9},
		"streams":   {Job{Kind: Streams, Path: "/small", Conns: 20, Time: short}, 20},
		"events":    {Job{Kind: Events, Path: "/events", Count: 3}, 3},
		"verified":  {Job{Kind: Fetch, Path: "/small", Roots: roots}, 1},
	} {
		j := c.job
		j.Target, j.Host, j.Header = target, "example.com", "X-Bench: yes\r\n"
		before := asked.Load()
		r := do(t, j)
		if r.Errors > 0 || r.Ops < c.ops || r.P50 <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if n := asked.Load() - before; j.Path == "/small" && n < int64(r.Ops) {
			t.Errorf("%s: the origin had %d requests, the client counts %d", name, n, r.Ops)
		}
		if j.Kind == Fetch && (r.Text != "small example.com\n") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestResumption: sessions are resumed where that is asked for, and only there.
func TestResumption(t *testing.T) {
	s, _, _ := server(t)
	for _, resume := range []bool{false, true} {
		r := do(t, Job{Kind: NewConn, Path: "/small", Conns: 1, Count: 5, Resume: resume, Host: "example.com", Header: "X-Bench: yes\r\n",
			Target: Target{Mode: ByAddress, Address: s.Listener.Addr().String()}})
		if want := map[bool]int{true: 4}[resume]; r.Resumed != want || r.Errors > 0 {
			t.Errorf("%d of 5 handshakes were resumed, want %d: %+v", r.Resumed, want, r)
		}
	}
}

// TestFailures: what goes wrong is counted as such.
func TestFailures(t *testing.T) {
	s, _, _ := server(t)
	other := filepath.Join(t.TempDir(), "other.pem")
	if err := os.WriteFile(other, []byte("no certificate"), 0o644); err != nil {
		t.Fatal(err)
	}
	address := s.Listener.Addr().String()
	for name, j := range map[string]Job{
		"status 400":     {Kind: NewConn, Path: "/small", Conns: 1, Count: 1, Target: Target{Mode: ByAddress, Address: address}},
		"not verified":   {Kind: Fetch, Path: "/small", Roots: "../../../LICENSE", Target: Target{Mode: ByAddress, Address: address}},
		"no certificate": {Kind: Fetch, Path: "/small", Roots: other, Target: Target{Mode: ByAddress, Address: address}},
		"no proxy":       {Kind: Fetch, Path: "/small", Target: Target{Mode: ByConnect, Address: address}},
		"nobody":         {Kind: KeepAlive, Path: "/small", Conns: 1, Time: 50 * time.Millisecond, Target: Target{Mode: ByAddress, Address: "127.0.0.1:1"}},
		"no work":        {Kind: "dance"},
	} {
		j.Host = "example.com"
		if r := do(t, j); r.Errors == 0 || r.Last == "" || r.Ops > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestQuestions: answers are counted, and refusals are errors.
func TestQuestions(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ns := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Name == "known.test." {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "known.test.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(192, 0, 2, 1)}}
		} else {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m) // who asked may have gone
	})}
	go func() { _ = ns.ActivateAndServe() }() // until it is shut down
	t.Cleanup(func() { _ = ns.Shutdown() })
	target := Target{Mode: ByName, DNS: pc.LocalAddr().String()}
	for _, kind := range []Kind{Questions, Once} {
		j := Job{Kind: kind, Conns: 2, Time: 100 * time.Millisecond, Target: target, Names: []string{"known.test", "known.test"}}
		if r := do(t, j); r.Errors > 0 || r.Ops < 2 {
			t.Errorf("%s: %+v", kind, r)
		}
		j.Names = []string{"unknown.test"}
		if r := do(t, j); r.Errors == 0 || r.Ops > 0 {
			t.Errorf("%s of a name that is not there: %+v", kind, r)
		}
	}
}
