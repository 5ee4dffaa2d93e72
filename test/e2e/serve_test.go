//go:build linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// life is what a sandbox must find again after a restart.
type life struct {
	ID      string            `json:"id"`
	Env     map[string]string `json:"env"`
	CA      string            `json:"ca"`
	Address netip.Addr        `json:"-"`
}

func lifeIn(t *testing.T, s *lab.Sandbox, host string) life {
	t.Helper()
	out, err := output(s.Lab.GW, s.Lab.Binary, "sandbox", "show", s.ID, "--json", "--socket", s.Gateway.Socket())
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var l life
	must(t, json.Unmarshal(out, &l))
	l.Address, err = s.Resolve(host, dns.TypeA)
	must(t, err)
	return l
}

// TestServeRestart: sandboxes that run across a restart have the same
// addresses, CA and placeholders after it, whether the daemon was ended or
// killed. NET-08.
func TestServeRestart(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Env: []string{"REAL_KEY=" + value}, Interfaces: []string{"sb43"}, Policy: one(`
secret "API_KEY" {
  hosts       = ["*.restart.test"]
  placeholder = "sk_{rand:24}"
  source "env" { name = "REAL_KEY" }
}
sandbox "r" {
  match { cidrs = ["10.66.43.0/24"] }
  allow "*.restart.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`)})
	s, i := g.Attach(t, "r"), g.Interface(t, "r", 43)
	const host = "a.restart.test"
	for n := range 5 { // so that the address is not the pool's first
		_, err := s.Resolve(fmt.Sprintf("x%d.restart.test", n), dns.TypeA)
		must(t, err)
	}
	before := lifeIn(t, s, host)
	behind, err := i.Resolve(host, dns.TypeA)
	must(t, err)
	if !strings.HasPrefix(before.Env["API_KEY"], "sk_") || before.CA == "" {
		t.Fatalf("before: %+v", before)
	}
	for _, stop := range []func() error{g.Stop, g.Kill} {
		must(t, stop())
		if _, err := s.Ask(host, dns.TypeA); err == nil {
			t.Error("a question was answered while the gateway was down")
		}
		must(t, g.Start())
		after := lifeIn(t, s, host)
		if after.ID != before.ID || after.CA != before.CA || after.Address != before.Address || after.Env["API_KEY"] != before.Env["API_KEY"] {
			t.Errorf("after: %+v\nbefore: %+v", after, before)
		}
		if a, err := i.Resolve(host, dns.TypeA); err != nil || a != behind {
			t.Errorf("behind the interface the address is %v, before %v (%v)", a, behind, err)
		}
		n := len(origin(host).Requests())
		for what, box := range map[string]*lab.Sandbox{"netns": s, "interface": i} {
			if a := box.Get(t, "https://"+host+"/", "Authorization: Bearer "+before.Env["API_KEY"]); a.Status != 200 {
				t.Errorf("%s: got %d %s", what, a.Status, a.Reason())
			}
		}
		for _, q := range origin(host).Requests()[n:] {
			if got := q.Header["Authorization"]; len(got) != 1 || got[0] != "Bearer "+value {
				t.Errorf("the origin saw %q", got)
			}
		}
	}
	// The address that was looked up before serves without a new question.
	c, err := s.DialIP("tcp", netip.AddrPortFrom(before.Address, 443).String())
	must(t, err)
	tc, err := s.Handshake(c, host+":443", nil)
	must(t, err)
	w := lab.OnConn(t, tc)
	w.Send(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	if a := w.Answer(t, "GET"); a.Status != 200 {
		t.Errorf("over the old address: %d %s", a.Status, a.Reason())
	}
	must(t, g.Stop())
	verified(t, g.State+"/audit")
}

// TestServeSandboxesNeverCross: many sandboxes in one process, each with a
// host and a secret of its own, all at once.
func TestServeSandboxesNeverCross(t *testing.T) {
	l := begin(t)
	const boxes = 8
	var policy strings.Builder
	env := []string{}
	for n := range boxes {
		env = append(env, fmt.Sprintf("REAL_%d=%s-%d", n, value, n))
		fmt.Fprintf(&policy, `
secret "KEY_%[1]d" {
  hosts = ["h%[1]d.cross.test", "all.cross.test"]
  source "env" { name = "REAL_%[1]d" }
}
sandbox "c%[1]d" {
  allow "h%[1]d.cross.test" {
    addresses = DOCS
    inject    = ["KEY_%[1]d"]
  }
  allow "all.cross.test" {
    addresses = DOCS
    inject    = ["KEY_%[1]d"]
  }
}
`, n)
	}
	g := l.Gateway(t, lab.GatewayOptions{Policy: one(policy.String()), Env: env})
	before := len(origin("all.cross.test").Requests())
	var wg sync.WaitGroup
	for n := range boxes {
		s := g.Attach(t, fmt.Sprintf("c%d", n))
		wg.Go(func() { crossing(t, s, n, boxes) })
	}
	wg.Wait()
	for n := range boxes {
		for _, q := range origin(fmt.Sprintf("h%d.cross.test", n)).Requests() {
			if got := q.Header["Authorization"]; len(got) != 1 || got[0] != fmt.Sprintf("Bearer %s-%d", value, n) || q.Target != fmt.Sprintf("/from/%d", n) {
				t.Errorf("h%d saw %s with %q", n, q.Target, got)
			}
		}
	}
	for _, q := range origin("all.cross.test").Requests() {
		if got, want := q.Header["Authorization"], "Bearer "+value+"-"+strings.TrimPrefix(q.Target, "/from/"); len(got) != 1 || got[0] != want {
			t.Errorf("%s came with %q", q.Target, got)
		}
	}
	if n := len(origin("all.cross.test").Requests()) - before; n != 3*boxes {
		t.Errorf("%d requests came to the host of all, not %d", n, 3*boxes)
	}
}

// crossing makes the attempts of sandbox n.
func crossing(t *testing.T, s *lab.Sandbox, n, boxes int) {
	for other := range boxes {
		url := fmt.Sprintf("https://h%d.cross.test/from/%d", other, n)
		a, err := lab.Try(s.Client(t, other%2 == 0), lab.NewRequest(t, "GET", url, "", fmt.Sprintf("Authorization: Bearer $KEY_%d", other)))
		if err != nil || (a.Status == 200) != (other == n) {
			t.Errorf("c%d: %s: %d %s (%v)", n, url, a.Status, a.Reason(), err)
		}
		if other == n {
			continue
		}
		a, err = lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", "https://all.cross.test/", "", fmt.Sprintf("Authorization: Bearer $KEY_%d", other)))
		if err != nil || a.Reason() != "placeholder_leak" {
			t.Errorf("c%d with the key of %d: %d %s (%v)", n, other, a.Status, a.Reason(), err)
		}
	}
	c := s.Client(t, false)
	for range 3 { // all over connections to one origin, which are not shared
		a, err := lab.Try(c, lab.NewRequest(t, "GET", fmt.Sprintf("https://all.cross.test/from/%d", n), "", fmt.Sprintf("Authorization: Bearer $KEY_%d", n)))
		if err != nil || a.Status != 200 {
			t.Errorf("c%d: %d %s (%v)", n, a.Status, a.Reason(), err)
		}
	}
	for _, e := range s.Events(audit.Filter{}) {
		if e.Sandbox.Name != s.Name {
			t.Errorf("an event of %s is of %s", s.Name, e.Sandbox.Name)
		}
	}
}

// TestServeSpoofedSource: packets with a source that is not the sandbox's own
// are refused and recorded, in both versions of IP.
func TestServeSpoofedSource(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Interfaces: []string{"sb44"}, Policy: one(`
sandbox "sp" {
  ipv6 = true
  match { cidrs = ["10.66.44.2/32", "fd66:44::2/128"] }
}
`)})
	s := g.Interface(t, "sp", 44)
	w := l.Watch(t)
	must(t, s.NS.Do(func() error {
		fd4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		must(t, err)
		defer unix.Close(fd4)
		fd6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		must(t, err)
		defer unix.Close(fd6)
		for _, src := range []string{"10.66.44.3", lab.Uplink, "8.8.8.8"} {
			must(t, unix.Sendto(fd4, lab.Packet4(netip.MustParseAddr(src), w.IP4, unix.IPPROTO_UDP, 0, 443), 0, &unix.SockaddrInet4{Addr: w.IP4.As4()}))
		}
		return unix.Sendto(fd6, lab.Packet6(netip.MustParseAddr("fd66:44::3"), w.IP6, unix.IPPROTO_UDP, 443), 0, &unix.SockaddrInet6{Addr: w.IP6.As16()})
	}))
	var got []string
	if !lab.Within(patience, func() bool {
		got = nil
		for _, e := range g.Events(audit.Filter{Reason: "spoofed_source"}) {
			if e.Src != nil {
				got = append(got, e.Src.IP)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, []string{"10.66.44.3", lab.Uplink, "8.8.8.8", "fd66:44::3"})
	}) {
		t.Errorf("recorded as spoofed: %q", got)
	}
	if n := w.Packets(t); n != 0 {
		t.Errorf("%d packets arrived", n)
	}
}

// TestServeUnknownSandbox: a sandbox that the policy no longer has may do
// nothing, and is told so.
func TestServeUnknownSandbox(t *testing.T) {
	l := begin(t)
	policy := "sandbox \"a\" {\n  allow \"gone.unknown.test\" { addresses = DOCS }\n}\n"
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"a.hcl": fill(policy), "b.hcl": "sandbox \"b\" {}\n"}})
	s := g.Attach(t, "a")
	if a := s.Get(t, "https://gone.unknown.test/"); a.Status != 200 {
		t.Fatalf("got %d %s", a.Status, a.Reason())
	}
	seen := len(origin("gone.unknown.test").Requests())
	g.SetPolicy(t, "a.hcl", "sandbox \"c\" {}\n")
	a, err := lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", "https://gone.unknown.test/", ""))
	if err == nil && a.Reason() != "unknown_sandbox" {
		t.Errorf("got %d %s", a.Status, a.Reason())
	}
	g.Await(t, 1, audit.Filter{Reason: "unknown_sandbox"})
	if n := len(origin("gone.unknown.test").Requests()); n != seen {
		t.Errorf("the origin saw %d requests more", n-seen)
	}
}

// TestServeDrains: SIGTERM lets what is running finish, takes nothing new, and
// ends with 0.
func TestServeDrains(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one("sandbox \"d\" {\n  allow \"drain.serve.test\" { addresses = DOCS }\n}\n")})
	s := g.Attach(t, "d")
	c := s.Client(t, false)
	resp, err := c.Get("https://drain.serve.test/lab/ndjson?n=200&ms=50")
	must(t, err)
	defer resp.Body.Close()
	must(t, g.Signal(syscall.SIGTERM))
	if !lab.Within(patience, func() bool { _, err := s.Ask("drain.serve.test", dns.TypeA); return err != nil }) {
		t.Error("questions are answered while the gateway drains")
	}
	if code, err := g.Exit(10 * time.Millisecond); err == nil {
		t.Errorf("it ended with %d while a request went on", code)
	}
	lines := 0
	dec := json.NewDecoder(resp.Body)
	for dec.More() {
		var line struct{ I int }
		must(t, dec.Decode(&line))
		lines++
	}
	if lines != 200 {
		t.Errorf("%d lines came, not 200", lines)
	}
	if code, err := g.Exit(lab.StartTime); code != 0 || err != nil {
		t.Errorf("exit %d (%v)\n%s", code, err, g.Stderr())
	}
	verified(t, g.State+"/audit")
	ended := false
	for _, e := range onDisk(t, g.State+"/audit") {
		ended = ended || e.Kind == "http" && e.Phase == audit.PhaseEnd && e.Error == nil
	}
	if !ended {
		t.Error("the end of the request is not recorded")
	}
}

// TestServeRemoveLeavesNothing runs alone: it takes the rules of every gateway
// away.
func TestServeRemoveLeavesNothing(t *testing.T) {
	l := world.lab
	settings := func() string {
		var all string
		for _, argv := range [][]string{{"nft", "list", "ruleset"}, {"ip", "rule"}, {"ip", "-6", "rule"}, {"ip", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all", "type", "unreachable"}} {
			out, err := output(l.GW, argv...)
			if err != nil {
				t.Fatalf("%q: %v: %s", argv, err, out)
			}
			all += strings.Join(argv, " ") + "\n" + string(out)
		}
		return all
	}
	try := func(args ...string) (string, error) {
		cmd := exec.Command(l.Binary, append([]string{"serve", "--remove"}, args...)...)
		out := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = out, out
		must(t, l.GW.Start(cmd))
		err := cmd.Wait()
		return out.String(), err
	}
	remove := func(args ...string) {
		if out, err := try(args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	remove() // where there is nothing it is content
	before := settings()
	t.Run("gateway", func(t *testing.T) {
		g := l.Gateway(t, lab.GatewayOptions{Interfaces: []string{"sb45"}, Policy: one("sandbox \"x\" {\n  match { cidrs = [\"10.66.45.0/24\"] }\n}\n")})
		g.Interface(t, "x", 45)
		if out, err := try("--config", g.Config()); err == nil || !strings.Contains(out, "a daemon runs with it") || !strings.Contains(out, "stop it first") {
			t.Errorf("while it runs: %v: %s", err, out)
		}
		if !strings.Contains(settings(), "sb45") {
			t.Error("the rules of a gateway that runs were removed")
		}
		must(t, g.Stop())
		if !strings.Contains(settings(), "sb45") {
			t.Error("the rules did not stay when the gateway ended")
		}
		remove("--config", g.Config())
		if after := settings(); strings.Contains(after, "sallyport") || strings.Contains(strings.ReplaceAll(after, "dev sb45", ""), "sb45") {
			t.Errorf("left:\n%s", after)
		}
	})
	// What tests before have left may have been there before, and go meanwhile;
	// a link is off the host's lists a moment before its addresses are.
	var left []string
	if !lab.Within(lab.StartTime, func() bool { left = more(settings(), before); return len(left) == 0 }) {
		t.Errorf("left:\n%s\nbefore:\n%s", strings.Join(left, "\n"), before)
	}
}

// more are the lines of after that before has not, whatever has been counted.
func more(after, before string) (lines []string) {
	counted := regexp.MustCompile(`packets \d+ bytes \d+`)
	had := map[string]int{}
	for line := range strings.Lines(counted.ReplaceAllString(before, "")) {
		had[line]++
	}
	for line := range strings.Lines(counted.ReplaceAllString(after, "")) {
		if had[line]--; had[line] < 0 {
			lines = append(lines, line)
		}
	}
	return lines
}
