//go:build linux

package corpus_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

func auditPolicy() map[string]string { return nil }

// records are the lines of every segment of the log. What is being written is
// not there yet. They are read one by one: to copy so much at once under the
// race detector holds up all tests that run beside it, for seconds.
func records(t *testing.T, g *lab.Gateway) iter.Seq[[]byte] {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(g.State, "audit", "audit-*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d segments: %v", len(files), err)
	}
	return func(yield func([]byte) bool) {
		n := 0
		for _, name := range files {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(f)
			line, err := r.ReadBytes('\n')
			for ; err == nil; line, err = r.ReadBytes('\n') {
				if n++; !yield(line[:len(line)-1]) {
					break
				}
			}
			_ = f.Close() // it was only read
			if err == nil {
				return
			}
			if err != io.EOF {
				t.Fatal(err)
			}
		}
		if n == 0 {
			t.Fatal("there are no records")
		}
	}
}

func TestAUD01LogForging(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "aud01.good.test"
	esc := "\x1b]0;x\x07\x1b[2J"
	check(t, s.Get(t, `https://`+host+`/%0a{"verdict":"allow"}`), 200, "")
	w := s.Secure(t, host+":443")
	w.Send(t, get("/", host, "User-Agent: =cmd|'/c calc'!A1 \u202e\u0085\x9b2J"))
	w.Answer(t, "GET")
	w = s.Secure(t, host+":443")
	w.Send(t, get("/", host, "User-Agent: "+esc))
	w.Answer(t, "GET")
	w = s.Secure(t, host+":443")
	w.Send(t, get("/", esc+host))
	w.Answer(t, "GET")
	w = s.Plain(t, host+":443")
	w.Send(t, string(helloFor(t, "a\x1b[2Jb\n{}.good.test")))
	w.Rest(t, 5*time.Second)
	for _, name := range []string{`a\027[2J.aud01.evil.test`, `x\010{"verdict":"allow"}.aud01.evil.test`, `\255\254.aud01.evil.test`} {
		ask(t, s, name, dns.TypeTXT)
	}
	s.Mark()
	var seq uint64
	for line := range records(t, world.gateway) {
		var e struct {
			Schema string `json:"schema"`
			Seq    uint64 `json:"seq"`
		}
		if err := json.Unmarshal(line, &e); err != nil || e.Schema != audit.Schema || e.Seq != seq+1 {
			t.Fatalf("not one record a line: %v: %s", err, line)
		}
		seq = e.Seq
		for _, b := range line {
			if b < 0x20 || b >= 0x7f && b < 0xa0 && !utf8.Valid(line) {
				t.Errorf("byte %#x in %s", b, line)
				break
			}
		}
		for _, r := range string(line) {
			if r == 0x202e || r >= 0x7f && r < 0xa0 {
				t.Errorf("rune %U in %s", r, line)
				break
			}
		}
	}
	for _, format := range []string{"compact", "json"} {
		out, err := exec.Command(world.lab.Binary, "tail", "-n", "100000", "-o", format, "--sandbox", s.ID, "--state", world.gateway.State).CombinedOutput()
		if err != nil {
			t.Fatalf("tail: %v: %s", err, out)
		}
		if bytes.ContainsAny(out, "\x1b\x07\r\u202e") || len(out) == 0 {
			t.Errorf("tail -o %s prints %q", format, out)
		}
	}
}

func TestAUD03ClientCredentialsAndQueries(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "aud03.other.test"
	events := s.Expect(t, allowed(host), func() {
		check(t, s.Get(t, "https://"+host+"/p?token=abcdef123&X-Amz-Signature=feedbeef99", "Authorization: Bearer xyz-aud03-secret", "Cookie: session=aud03cookie"), 200, "")
	})
	if h := events[2].HTTP; h == nil || h.Path != "/p" || strings.Join(h.QueryKeys, ",") != "token,X-Amz-Signature" {
		t.Errorf("recorded: %+v", h)
	}
	secrets := []string{"abcdef123", "feedbeef99", "xyz-aud03-secret", "aud03cookie"}
	for line := range records(t, world.gateway) {
		for _, secret := range secrets {
			if bytes.Contains(line, []byte(secret)) {
				t.Errorf("%s is in the log: %s", secret, line)
			}
		}
	}
	for _, secret := range secrets {
		if strings.Contains(world.gateway.Stderr(), secret) {
			t.Errorf("%s was printed", secret)
		}
	}
}

func TestAUD04DiskFull(t *testing.T) {
	l := begin(t)
	state := filepath.Join(l.Dir, l.Unique("small"))
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil { // AUD-02 may be reading there
			t.Error(err)
		}
	})
	g := l.Gateway(t, lab.GatewayOptions{State: state, Policy: map[string]string{"p.hcl": l.MustPolicy(t, p0, real)}})
	s := g.Attach(t, "s1")
	const host = "aud04.good.test"
	check(t, s.Get(t, "https://"+host+"/"), 200, "")
	open := s.Secure(t, host+":443")
	open.Send(t, get("/", host))
	check(t, open.Answer(t, "GET"), 200, "")
	filler := filepath.Join(state, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	_ = f.Close() // it is full
	// Until nothing has been recorded for a while: when the log tries again, a
	// shorter line may still find room in the last page.
	var refused time.Time
	for end := time.Now().Add(patience); refused.IsZero() || time.Since(refused) < 2*time.Second; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("requests are answered while the disk is full")
		}
		_, _ = s.Ask("aud04.evil.test", dns.TypeA) // to the end of the last page
		n := len(origin(host).Requests())
		open.Send(t, get("/", host))
		a, err := open.TryAnswer("GET")
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != 503 {
			refused = time.Time{}
			continue
		}
		check(t, a, 503, "audit_unavailable")
		if len(origin(host).Requests()) != n {
			t.Error("a request without a record reached the origin")
		}
		if refused.IsZero() {
			refused = time.Now()
		}
	}
	if m, err := s.Ask(host, dns.TypeA); err == nil && len(m.Answer) > 0 {
		t.Errorf("a question without a record was answered: %v", m)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		a, err := lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", "https://"+host+"/", ""))
		if err == nil && a.Status != 200 {
			err = fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return err
	})
	gap := g.Await(t, 1, audit.Filter{Kind: "audit"})
	if n := gap[0].Note; n == nil || n.Action != audit.ActionGap {
		t.Errorf("recorded: %+v", gap[0].Note)
	}
	if _, err := audit.Verify(filepath.Join(state, "audit")); err != nil {
		t.Errorf("the log: %v", err)
	}
}

func TestAUD06EveryAttemptHasOneRecord(t *testing.T) {
	begin(t)
	s := s1(t)
	const good, plain, evil = "aud06.good.test", "aud06.plain.test", "aud06.evil.test"
	rest := func(w *lab.Wire) { w.Rest(t, 5*time.Second) }
	fetch := func(url string, lines ...string) {
		c := s.Client(t, false)
		defer c.CloseIdleConnections()
		lab.Do(t, c, lab.NewRequest(t, "GET", url, "", lines...))
	}
	attempts := []struct {
		name string
		do   func()
		want []string
	}{
		{"A", func() { ask(t, s, good, dns.TypeA) }, named(good)},
		{"AAAA", func() { ask(t, s, good, dns.TypeAAAA) }, named(good)},
		{"HTTPS record", func() { ask(t, s, good, dns.TypeHTTPS) }, named(good)},
		{"denied A", func() { ask(t, s, evil, dns.TypeA) }, []string{"dns deny host_not_allowed " + evil}},
		{"denied TXT", func() { ask(t, s, "t."+evil, dns.TypeTXT) }, []string{"dns deny host_not_allowed t." + evil}},
		{"single label", func() { ask(t, s, "aud06", dns.TypeA) }, []string{"dns deny host_not_allowed aud06"}},
		{"own name", func() { ask(t, s, "sallyport.internal", dns.TypeA) }, []string{"dns allow gateway_name sallyport.internal"}},
		{"bad name", func() { ask(t, s, "a b."+evil, dns.TypeA) }, []string{"dns deny bad_hostname"}},
		{"no SNI", func() {
			c, err := s.Dial("tcp", good+":443")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.Handshake(c, "", &tls.Config{InsecureSkipVerify: true}) // it fails
		}, append(named(good), "conn deny no_sni "+good)},
		{"not TLS", func() { w := s.Plain(t, good+":443"); w.Send(t, "\x00\x01\x02\x03"); rest(w) }, append(named(good), "conn deny not_tls "+good)},
		{"literal", func() { rest(s.Plain(t, lab.Origin+":443")) }, []string{"conn deny ip_literal " + lab.Origin}},
		{"literal v6", func() { rest(s.Plain(t, "["+lab.Origin6+"]:443")) }, []string{"conn deny ip_literal " + lab.Origin6}},
		{"stale", func() { w := s.Plain(t, "198.19.77.7:443"); w.Send(t, "\x00\x01"); rest(w) }, []string{"conn deny stale_address"}},
		{"port", func() { rest(s.Plain(t, good+":22")) }, append(named(good), "conn deny port_not_allowed "+good)},
		{"DoT", func() { rest(s.Plain(t, "1.1.1.1:853")) }, []string{"conn deny dot_blocked 1.1.1.1"}},
		{"UDP", func() { datagram(t, s, lab.Origin+":9999") }, []string{"packet deny udp_blocked"}},
		{"QUIC", func() { datagram(t, s, lab.Origin+":443") }, []string{"packet deny quic_blocked"}},
		{"ICMP", func() { raw(t, s, unix.AF_INET, unix.IPPROTO_ICMP, lab.Origin, []byte{8, 0, 0, 0, 0, 1, 0, 1}) }, []string{"packet deny icmp_blocked"}},
		{"ICMPv6", func() { ping6(t, s, lab.Origin6) }, []string{"packet deny icmp_blocked"}},
		{"GRE", func() { raw(t, s, unix.AF_INET, unix.IPPROTO_GRE, lab.Origin, []byte("\x00\x00\x08\x00tunnel")) }, []string{"packet deny proto_blocked"}},
		{"allowed request", func() { fetch("https://" + good + "/") }, allowed(good)},
		{"allowed plain request", func() { fetch("http://" + plain + "/") }, allowed(plain)},
		{"allowed h2 request", func() {
			c := s.Client(t, true)
			defer c.CloseIdleConnections()
			lab.Do(t, c, lab.NewRequest(t, "GET", "https://"+good+"/", ""))
		}, allowed(good)},
		{"aborted request", func() {
			w := s.Secure(t, good+":443")
			w.Send(t, get("/lab/hold", good))
			_, _ = io.ReadFull(w, make([]byte, 20)) // the head of the answer
			_ = w.Close()
		}, allowed(good)},
		{"denied https", func() { fetch("https://" + evil + "/") }, unnamed(evil, "host_not_allowed")},
		{"denied http", func() { fetch("http://" + evil + "/") }, unnamed(evil, "host_not_allowed")},
		{"fronting", func() {
			w := s.Secure(t, good+":443")
			w.Send(t, get("/", evil))
			w.Answer(t, "GET")
		}, refused(good, "authority_mismatch")},
		{"smuggling", func() {
			w := s.Secure(t, good+":443")
			w.Send(t, "POST / HTTP/1.1\r\nHost: "+good+"\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
			w.Answer(t, "GET")
		}, refused(good, "smuggling")},
		{"garbage in TLS", func() {
			w := s.Secure(t, good+":443")
			w.Send(t, "\x00\x01\x02\r\n\r\n")
			w.Answer(t, "GET")
		}, refused(good, "smuggling")},
		{"upgrade", func() { fetch("https://"+good+"/", "Connection: Upgrade", "Upgrade: h2c") }, refused(good, "upgrade_not_allowed")},
		{"CONNECT", func() {
			w := s.Plain(t, plain+":80")
			w.Send(t, "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n")
			w.Answer(t, "GET")
			_ = w.Close()
		}, refused(plain, "connect_refused")},
		{"leak", func() { fetch("https://aud06.other.test/", "Authorization: Bearer $API_KEY") }, refused("aud06.other.test", "placeholder_leak")},
		{"secret in place", func() { fetch("https://"+good+"/", "Authorization: Bearer $API_KEY") }, allowed(good)},
		{"secret out of place", func() { fetch("https://"+good+"/", "X-Data: $API_KEY") }, refused(good, "placeholder_place")},
		{"nothing is said", func() {
			c, err := s.Dial("tcp", good+":443")
			if err == nil {
				_ = c.Close()
			}
		}, connected(good)},
		{"malformed DNS", func() {
			c, err := s.DialIP("udp", "192.0.2.1:53")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			defer func() { _, _ = c.Read(make([]byte, 100)) }() // else its answer is refused
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = c.Write([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
		}, []string{"dns deny protocol_error"}},
		{"distrust", func() {
			c, err := s.Dial("tcp", good+":443")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.Handshake(c, good+":443", &tls.Config{RootCAs: x509.NewCertPool()}) // it fails
		}, append(connected(good), "tls deny protocol_error "+good)},
	}
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			events := s.Expect(t, a.want, a.do)
			for _, e := range events {
				if e.Sandbox == nil || e.Sandbox.Name != "s1" || e.Sandbox.ID != s.ID || e.Policy == nil || e.Time.IsZero() {
					t.Errorf("%s: sandbox %+v, policy %+v", lab.Line(e), e.Sandbox, e.Policy)
				}
				if e.Verdict == "allow" && e.Reason == "rule_allow" && (e.Rule == nil || e.Rule.File == "" || e.Rule.Line == 0) {
					t.Errorf("%s has the rule %+v", lab.Line(e), e.Rule)
				}
				if e.Kind == audit.KindHTTP && (e.HTTP == nil || e.Req == "" || e.Conn == "") {
					t.Errorf("%s: http %+v, req %q, conn %q", lab.Line(e), e.HTTP, e.Req, e.Conn)
				}
			}
		})
	}
	t.Run("each admitted attempt has one end", func(t *testing.T) {
		eventually(t, func() error {
			ends := map[string]int{}
			for _, e := range s.Events(audit.Filter{}) {
				key := string(e.Kind) + " " + e.Conn
				if e.Req != "" {
					key = "request " + e.Req
				}
				switch {
				case e.Phase == audit.PhaseEnd:
					ends[key]--
					if e.Bytes == nil && e.Reason != "gateway_name" && e.HTTP == nil {
						return fmt.Errorf("the end of %s has no bytes", key)
					}
				case e.Phase == audit.PhaseDecision && e.Verdict == "allow" && e.Kind != audit.KindDNS:
					ends[key]++
				}
			}
			for key, n := range ends {
				if n != 0 {
					return fmt.Errorf("%s: %+d: %q", key, n, lineList(s.Events(audit.Filter{Conn: key[strings.IndexByte(key, ' ')+1:]})))
				}
			}
			return nil
		})
	})
}

func TestAUD08OddFields(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "aud08.good.test"
	w := s.Secure(t, host+":443")
	w.Send(t, get("/\xff\xfe/"+strings.Repeat("p", 100<<10), host))
	w.Answer(t, "GET")
	w = s.Secure(t, host+":443")
	w.Send(t, get("/", strings.Repeat("h", 64<<10)))
	w.Answer(t, "GET")
	ask(t, s, strings.Repeat(`\200`, 60)+"."+strings.Repeat(`\001`, 60)+"."+strings.Repeat(`\034`, 60)+"."+strings.Repeat(`\092`, 50), dns.TypeA)
	s.Mark()
	for line := range records(t, world.gateway) {
		if !json.Valid(line) || !utf8.Valid(line) {
			t.Fatalf("not JSON in UTF-8: %.300q", line)
		}
		if len(line) > 16<<10 {
			t.Errorf("a record of %d bytes: %.200s", len(line), line)
		}
	}
}

func TestAUD10Order(t *testing.T) {
	begin(t)
	s := s1(t)
	for range 20 {
		check(t, s.Get(t, "https://aud10.good.test/"), 200, "")
	}
	s.Mark()
	var seq uint64
	for _, e := range world.gateway.Events(audit.Filter{}) {
		if e.Seq != seq+1 || e.Instance == "" || e.Time.Location() != time.UTC || e.DurationMS < 0 || e.GatewayMS < 0 {
			t.Fatalf("record %d after %d: instance %q, duration %v", e.Seq, seq, e.Instance, e.DurationMS)
		}
		seq = e.Seq
	}
}

func TestAUD11PermissionsAndTampering(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, p0, real)}})
	s := g.Attach(t, "s1")
	check(t, s.Get(t, "https://aud11.good.test/"), 200, "")
	err := filepath.WalkDir(g.State, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the gateway has removed it
		}
		if err != nil {
			return err
		}
		limit := fs.FileMode(0o640)
		if d.IsDir() {
			limit = 0o750
		}
		if strings.HasSuffix(path, ".pem") {
			limit = 0o644
		}
		if info.Mode().Perm()&^limit != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(g.State, "audit")
	verify := func() ([]byte, error) {
		return exec.Command(l.Binary, "audit", "verify", "--state", g.State).CombinedOutput()
	}
	if out, err := verify(); err != nil {
		t.Errorf("audit verify: %v: %s", err, out)
	}
	file := filepath.Join(dir, "audit-000001.jsonl")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("aud11"))]++
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := verify(); err == nil || !bytes.Contains(out, []byte("audit-000001.jsonl:")) {
		t.Errorf("one byte was changed, and audit verify says %v: %s", err, out)
	}
	r := l.Run(t, lab.RunOptions{Policy: "sandbox \"s1\" {}\n", State: filepath.Join(l.Dir, l.Unique("aud11")), Argv: []string{"sh", "-c",
		"ls -la $0 $0/runs; cat $0/runs/*/audit/*.jsonl; echo x >> $0/runs/*/audit/audit-000001.jsonl", filepath.Join(l.Dir, fmt.Sprintf("aud11%d", 0))}})
	if strings.Contains(r.Stdout, "schema") {
		t.Errorf("the command read a log: %s", r.Stdout)
	}
}

func TestAUD12DenialText(t *testing.T) {
	begin(t)
	s := s1(t)
	const good, evil = "aud12.good.test", "aud12.evil.test"
	curl := func(args ...string) lab.Result {
		return s.Command(t, append([]string{"curl", "-sS", "-i", "--max-time", "10"}, args...)...)
	}
	for _, args := range [][]string{
		{"https://" + evil + "/"}, {"--http2", "https://" + evil + "/"}, {"--http1.1", "https://" + evil + "/"}, {"http://" + evil + "/"},
		{"https://" + good + ":8443/"}, {"-H", "X-Data: $API_KEY", "https://" + good + "/"}, {"-H", "Connection: Upgrade", "-H", "Upgrade: h2c", "--http1.1", "https://" + good + "/"},
	} {
		before := s.Mark()
		r := curl(args...)
		s.Mark()
		// Folded questions of earlier attempts may be recorded in between.
		var told []*audit.Event
		for _, e := range s.Decisions()[before:] {
			if e.Kind != audit.KindDNS && e.Req != "" && strings.Contains(r.Stdout, e.Req) {
				told = append(told, e)
			}
		}
		if r.Code != 0 || len(told) != 1 || !strings.Contains(r.Stdout, "sallyport: "+told[0].Reason+": ") {
			t.Fatalf("curl %q exits %d and prints:\n%s%s\nrecorded: %q", args, r.Code, r.Stdout, r.Stderr, lineList(s.Decisions()[before:]))
		}
		reason := told[0].Reason
		for _, hidden := range []string{"other.test", "plain.test", real, ".hcl", "203.0.113"} {
			if strings.Contains(r.Stdout, hidden) {
				t.Errorf("curl %q was told of %q: %s", args, hidden, r.Stdout)
			}
		}
		r = curl(append(args, "-H", "Accept: application/json")...)
		_, body, _ := strings.Cut(r.Stdout, "\r\n\r\n")
		var p struct{ Reason, Request, Host, Title string }
		if err := json.Unmarshal([]byte(body), &p); err != nil || p.Reason != reason || p.Request == "" || p.Title == "" {
			t.Errorf("curl %q as JSON: %v: %s", args, err, r.Stdout)
		}
	}
	t.Run("git", func(t *testing.T) {
		r := s.Command(t, "git", "ls-remote", "https://"+evil+"/r.git")
		if r.Code == 0 || !strings.Contains(r.Stderr, "403") {
			t.Errorf("git exits %d: %s", r.Code, r.Stderr)
		}
	})
	t.Run("a port that speaks nothing", func(t *testing.T) {
		r := s.Command(t, "curl", "-sS", "--max-time", "10", "telnet://"+good+":22")
		if r.Took > 5*time.Second {
			t.Errorf("it took %v", r.Took)
		}
	})
	t.Run("npm and pip find their member", func(t *testing.T) {
		a := s.Get(t, "https://"+evil+"/pkg", "Accept: application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*")
		var p struct{ Error, Detail string }
		if err := json.Unmarshal([]byte(a.Body), &p); err != nil || !strings.Contains(p.Error, "host_not_allowed") {
			t.Errorf("%v: %s", err, a.Body)
		}
	})
}

// TestAUD02NoSecretAnywhere runs last: it searches all that the gateways have
// written in the whole suite.
// aud02Tells is what the gateway of AUD-02 tells beside its log: notices to a
// program, and metrics.
const aud02Tells = `
alert "leak" {
  reasons = ["secret_exfiltration", "placeholder_leak"]
  notify  = ["program"]
}
notify "program" {
  exec { command = ["/bin/sh", "-c", "cat >>NOTICES; echo >>NOTICES"] }
}
`

func TestAUD02NoSecretAnywhere(t *testing.T) {
	l := begin(t)
	notices := filepath.Join(t.TempDir(), "notices")
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, p0+strings.ReplaceAll(aud02Tells, "NOTICES", notices), real)},
		More: "metrics { listen = \"127.0.0.1:9142\" }\n"})
	s := g.Attach(t, "s1")
	check(t, s.Get(t, "https://aud02.good.test/?q=1", "Authorization: Bearer $API_KEY"), 200, "")
	for _, path := range []string{"/a/" + real, "/?" + real + "=1", "/a/%52" + real[1:]} {
		check(t, s.Get(t, "https://aud02.other.test"+path, "User-Agent: "+real), 403, "secret_exfiltration")
	}
	check(t, s.Get(t, "https://aud02.good.test/lab/status?code=500", "Authorization: "+basicAuth("u:$API_KEY")), 500, "")
	// An upstream's error, of a URL that holds the value, and one that is not
	// made because of it.
	l.DNS.Set("aud02down.good.test", "60 A 203.0.113.250")
	s.Get(t, "https://aud02down.good.test/", "Authorization: Bearer $API_KEY")
	_, _ = s.Ask(real+".good.test", dns.TypeA) // whatever it is answered

	told := map[string]string{"environment": fmt.Sprintf("/proc/%d/environ", g.PID()), "command line": fmt.Sprintf("/proc/%d/cmdline", g.PID()), "notices": notices}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if b, err := os.ReadFile(notices); err == nil && bytes.Contains(b, []byte("secret_exfiltration")) {
			break
		}
	}
	for what, file := range told {
		b, err := os.ReadFile(file)
		if err != nil || what == "notices" && len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
		clean(t, what, b)
	}
	metrics := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		return c, errors.Join(l.GW.Do(func() (err error) { c, err = new(net.Dialer).DialContext(ctx, network, address); return err }))
	}}}
	resp, err := metrics.Get("http://127.0.0.1:9142/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(b, []byte("sallyport_")) {
		t.Errorf("metrics: %d bytes, %v", len(b), err)
	}
	clean(t, "metrics", b)
	for _, path := range holders(l.Dir, l.Binary) {
		t.Errorf("%s holds the secret", path)
	}
}

func clean(t *testing.T, what string, b []byte) {
	t.Helper()
	for _, form := range forms(real) {
		if bytes.Contains(b, []byte(form)) {
			t.Errorf("%s: the secret is in it", what)
		}
	}
}

// holders are the files below dir that hold the secret in any form, but those
// that are its source. TestMain looks too, after all cases.
func holders(dir, binary string) (found []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(filepath.Base(path), "secret") || path == binary {
			return nil // a file of a run that has just ended
		}
		if f, err := os.Open(path); err == nil {
			if holdsAny(f, forms(real)) {
				found = append(found, path)
			}
			_ = f.Close() // it was only read
		}
		return nil
	})
	return found
}

// holdsAny reads in pieces and looks for each text, also where pieces meet.
func holdsAny(r io.Reader, texts []string) bool {
	longest := 0
	for _, text := range texts {
		longest = max(longest, len(text))
	}
	b, kept := make([]byte, 64<<10), 0
	for {
		n, err := r.Read(b[kept:])
		for _, text := range texts {
			if bytes.Contains(b[:kept+n], []byte(text)) {
				return true
			}
		}
		if err != nil {
			return false
		}
		kept = copy(b, b[max(0, kept+n-longest):kept+n])
	}
}

// TestHoldsAny: a text is found wherever pieces meet.
func TestHoldsAny(t *testing.T) {
	for _, before := range []int{0, 1, 64<<10 - 7, 64<<10 - 1, 64 << 10, 200_000} {
		text := strings.Repeat("x", before) + "needle" + strings.Repeat("x", 100)
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			if !holdsAny(r, []string{"no", "needle"}) {
				t.Errorf("behind %d bytes it is not found", before)
			}
		}
		if holdsAny(strings.NewReader(text), []string{"needles"}) {
			t.Errorf("behind %d bytes another is found", before)
		}
	}
}
