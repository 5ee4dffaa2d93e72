//go:build linux

package audit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

// sallyport runs the program on the gateway's host and returns what it said.
func sallyport(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, world.lab.Binary, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, world.lab.GW.Start(cmd))
	_ = cmd.Wait() // the code is asked for
	return out.String(), cmd.ProcessState.ExitCode()
}

// ok is sallyport for what must succeed.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	out, code := sallyport(t, args...)
	if code != 0 {
		t.Fatalf("sallyport %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// ask makes a denied attempt.
func ask(t *testing.T, s *lab.Sandbox, name string) {
	t.Helper()
	if _, err := s.Ask(name, dns.TypeA); err != nil {
		t.Fatal(err)
	}
}

// alerts counts the records of notices of an alert.
func alerts(g *lab.Gateway, name string) (n int) {
	for _, e := range g.Events(audit.Filter{Kind: string(audit.KindAlert)}) {
		if e.Alert == name {
			n++
		}
	}
	return n
}

func TestMuteSilencesAndRecords(t *testing.T) {
	l := begin(t)
	b := &inbox{}
	serve(t, "127.0.0.1:8091", b)
	g := l.Gateway(t, lab.GatewayOptions{Env: []string{"SIGN=" + signingKey}, Policy: denied(`webhook {
    url         = "http://127.0.0.1:8091/"
    sign_secret = "SIGN_KEY"
  }`, secretBlock("SIGN_KEY", "alerts.test", "SIGN"))})
	s := g.Attach(t, "dev")
	id, _, _ := strings.Cut(ok(t, "alert", "mute", "den*", "--for", "1h", "--host", "quiet*", "--why", "load test", "--socket", g.Socket()), " ")
	if out, code := sallyport(t, "alert", "mute", "nosuch", "--for", "1h", "--socket", g.Socket()); code != 1 || !strings.Contains(out, `the policy has no alert "nosuch"; it has: `) {
		t.Errorf("a mute of an alert that is not there: exit %d, %s", code, out)
	}
	must(t, g.Kill())
	must(t, g.Start()) // a mute survives
	ask(t, s, "quiet.evil.test")
	ask(t, s, "loud.evil.test")
	b.settled(t, 1)
	eventually(t, "records of both", func() bool { return alerts(g, "denied") == 2 })
	if list := ok(t, "alert", "ls", "--socket", g.Socket()); !strings.Contains(list, "load test") || !strings.Contains(list, "loud.evil.test") || !strings.Contains(list, "ops/1/webhook") {
		t.Errorf("alert ls:\n%s", list)
	}
	ok(t, "alert", "unmute", id, "--socket", g.Socket())
	if out, code := sallyport(t, "alert", "unmute", id, "--socket", g.Socket()); code != 1 || !strings.Contains(out, "`sallyport alert ls` shows the IDs") {
		t.Errorf("a mute that is not there was ended: exit %d, %s", code, out)
	}
	ask(t, s, "quiet2.evil.test")
	b.settled(t, 2)
	tail := ok(t, "tail", "--alerts", "--state", g.State)
	if strings.Count(tail, "ALERT") != 4 || !strings.Contains(tail, "(muted)") || !strings.Contains(tail, "load test") {
		t.Errorf("tail --alerts:\n%s", tail)
	}
}

func TestReloadSwapsRulesAndSinks(t *testing.T) {
	l := begin(t)
	one, two := &inbox{}, &inbox{}
	serve(t, "127.0.0.1:8092", one)
	serve(t, "127.0.0.1:8093", two)
	sink := func(port string) map[string]string {
		return denied(`otlp { url = "http://127.0.0.1:`+port+`" }`, "")
	}
	g := l.Gateway(t, lab.GatewayOptions{Policy: sink("8092")})
	s := g.Attach(t, "dev")
	ask(t, s, "a.evil.test")
	one.settled(t, 1)
	g.SetPolicy(t, "p.hcl", sink("8093")["p.hcl"])
	ask(t, s, "a.evil.test") // goes on; it is not told again
	ask(t, s, "b.evil.test")
	two.settled(t, 1)
	broken := strings.Replace(sink("8092")["p.hcl"], `notify   = ["ops"]`, `notify   = ["nobody"]`, 1)
	g.WritePolicy(t, "p.hcl", broken)
	if err := g.Reload(); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a policy that notifies nobody was loaded: %v", err)
	}
	ask(t, s, "c.evil.test")
	two.settled(t, 2)
	g.SetPolicy(t, "p.hcl", "sandbox \"dev\" {}\n")
	eventually(t, "what fired is resolved", func() bool {
		n := 0
		for _, e := range g.Events(audit.Filter{Kind: string(audit.KindAlert)}) {
			if strings.HasPrefix(e.Message, audit.Resolved) {
				n++
			}
		}
		return n == 3
	})
	one.settled(t, 1)
}

// TestDetectorsAreOn: without a word of the policy a scan raises an alert, as a
// record; and where the policy names a sink, a notice.
func TestDetectorsAreOn(t *testing.T) {
	l := begin(t)
	b := &inbox{}
	serve(t, "127.0.0.1:8094", b)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one("sandbox \"dev\" {}\nsandbox \"other\" {}\n"), More: "metrics { listen = \"127.0.0.1:9104\" }\n"})
	s := g.Attach(t, "dev")
	for i := range 25 {
		ask(t, s, fmt.Sprintf("h%d.evil%d.test", i, i))
	}
	for i := range 12 {
		ask(t, s, fmt.Sprintf("%032x%08d.t.evil.test", i*7919, i))
	}
	eventually(t, "records of burst and tunnel", func() bool { return alerts(g, "builtin/burst") == 1 && alerts(g, "builtin/dns-tunnel") == 1 })
	g.SetPolicy(t, "p.hcl", `
sandbox "dev" {}
sandbox "other" {}
alert "scan" {
  detector  = "burst"
  threshold = 5
  sandbox   = "other"
  notify    = ["ops"]
}
notify "ops" {
  otlp { url = "http://127.0.0.1:8094" }
}
`)
	o := g.Attach(t, "other")
	for i := range 6 {
		ask(t, o, fmt.Sprintf("k%d.evil.test", i))
	}
	b.settled(t, 1)
	if alerts(g, "scan") != 1 || alerts(g, "builtin/burst") > 2 {
		t.Errorf("%d of scan, %d of builtin/burst", alerts(g, "scan"), alerts(g, "builtin/burst"))
	}
	want := []string{`sallyport_alerts_total{alert="builtin/burst",result="firing"} 1`, `sallyport_alerts_total{alert="builtin/burst",result="resolved"} 1`,
		`sallyport_alerts_total{alert="builtin/dns-tunnel",result="firing"} 1`, `sallyport_alerts_total{alert="scan",result="firing"} 1`,
		`sallyport_alerts_total{alert="scan",result="sent"} 1`}
	var got []string
	eventually(t, "metrics", func() bool {
		resp, err := client(t).Get("http://127.0.0.1:9104/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		got = regexp.MustCompile(`(?m)^sallyport_alerts_total.*$`).FindAllString(string(text), -1)
		return err == nil && slices.Equal(got, want)
	})
}

func TestAlertTestCommand(t *testing.T) {
	begin(t)
	b := &inbox{}
	serve(t, "127.0.0.1:8095", b)
	dir := t.TempDir()
	policy := dir + "/p.hcl"
	must(t, writeFile(policy, denied(`otlp { url = "http://127.0.0.1:8095" }`, "")["p.hcl"]))
	if out := ok(t, "alert", "test", "denied", "--policy", policy); !strings.Contains(out, "ok    ops/1/otlp") {
		t.Errorf("alert test: %s", out)
	}
	b.settled(t, 1)
	must(t, writeFile(policy, denied(`otlp { url = "http://127.0.0.1:1" }`, "")["p.hcl"]))
	if out, code := sallyport(t, "alert", "test", "ops", "--policy", policy); code != 1 || !strings.Contains(out, "FAIL  ops/1/otlp") {
		t.Errorf("alert test of a sink that is down: exit %d\n%s", code, out)
	}
	if out, code := sallyport(t, "alert", "test", "nothing", "--policy", policy); code != 1 || !strings.Contains(out, "builtin/burst, builtin/dns-tunnel") {
		t.Errorf("alert test of an unknown name: exit %d\n%s", code, out)
	}
}

// TestRunTellsBeforeItEnds: a command that is over in a moment has its alerts
// delivered.
func TestRunTellsBeforeItEnds(t *testing.T) {
	l := begin(t)
	b := &inbox{}
	serve(t, "127.0.0.1:8096", b)
	for name, uid := range map[string]int{"root": 0, "nobody": lab.Nobody} {
		r := l.Run(t, lab.RunOptions{UID: uid, Policy: denied(`otlp { url = "http://127.0.0.1:8096" }`, "")["p.hcl"], Sandbox: "dev",
			Argv: []string{"getent", "hosts", name + ".evil.test"}})
		if r.Took > 20*time.Second {
			t.Errorf("%s: took %v", name, r.Took)
		}
	}
	b.settled(t, 2)
}

// TestEventStream: the control socket streams what is recorded, filtered, and a
// client that was cut off goes on without gap and double.
func TestEventStream(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one("sandbox \"dev\" {}\nsandbox \"other\" {}\n")})
	s, o := g.Attach(t, "dev"), g.Attach(t, "other")
	ask(t, s, "before.evil.test")
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", g.Socket())
	}}}
	open := func(query, last string) (*bufio.Scanner, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/v1/events?"+query, nil)
		must(t, err)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := c.Do(req)
		must(t, err)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%s: %s %s", query, resp.Status, resp.Header.Get("Content-Type"))
		}
		stop := time.AfterFunc(30*time.Second, cancel)
		return bufio.NewScanner(resp.Body), func() { stop.Stop(); cancel(); _ = resp.Body.Close() }
	}
	// next reads one event: its id and its host.
	next := func(sc *bufio.Scanner) (id, host string) {
		for sc.Scan() {
			name, value, _ := strings.Cut(sc.Text(), ": ")
			switch name {
			case "id":
				id = value
			case "data":
				var e audit.Event
				must(t, json.Unmarshal([]byte(value), &e))
				if e.ID != id {
					t.Errorf("event %s has id %s", e.ID, id)
				}
				return id, e.Host
			}
		}
		t.Fatal("the stream ended: ", sc.Err())
		return "", ""
	}
	sc, stop := open("follow&blocked&sandbox=dev", "")
	ask(t, o, "of-another.evil.test")
	ask(t, s, "one.evil.test")
	ask(t, s, "two.evil.test")
	first, host := next(sc)
	if host != "one.evil.test" {
		t.Errorf("first event of %s", host)
	}
	stop()
	ask(t, s, "three.evil.test")
	sc, stop = open("follow&blocked&sandbox=dev", first)
	defer stop()
	for _, want := range []string{"two.evil.test", "three.evil.test"} {
		if _, host := next(sc); host != want {
			t.Errorf("after the cut: event of %s, want %s", host, want)
		}
	}
	ask(t, s, "four.evil.test")
	if _, host := next(sc); host != "four.evil.test" {
		t.Errorf("event of %s, want four", host)
	}
	resp, err := c.Get("http://gateway/v1/events?kind=dns&n=2")
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if lines := strings.Split(strings.TrimSpace(string(body)), "\n"); err != nil || len(lines) != 2 || !strings.Contains(lines[1], "four.evil.test") {
		t.Errorf("history: %s (%v)", body, err)
	}
	for _, bad := range []string{"n=x", "since=yesterday", "colour=red"} {
		resp, err := c.Get("http://gateway/v1/events?" + bad)
		must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", bad, resp.Status)
		}
	}
}
