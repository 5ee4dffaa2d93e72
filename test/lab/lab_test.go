//go:build linux

package lab_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"sallyport/test/lab"
)

const policy = `
secret "API_KEY" {
  hosts = ["good.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  ipv6 = true
  match { cidrs = ["10.66.1.0/24", "fd66:1::/64"] }
  allow "good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`

// TestEveryKindOfSandbox makes one allowed and one refused attempt from each.
func TestEveryKindOfSandbox(t *testing.T) {
	l := lab.New(t)
	text := l.MustPolicy(t, policy, "REAL-VALUE")
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": text}, Interfaces: []string{"sb*"}})
	kinds := map[string]*lab.Sandbox{
		"netns":         g.Attach(t, "s1"),
		"interface":     g.Interface(t, "s1", 1),
		"run as root":   l.RunSandbox(t, lab.RunOptions{Policy: text, Sandbox: "s1"}),
		"run as nobody": l.RunSandbox(t, lab.RunOptions{Policy: strings.Replace(text, `source "file" { path = `, `source "env" { name = "REAL" } # `, 1), Sandbox: "s1", UID: lab.Nobody, Env: []string{"REAL=REAL-VALUE"}}),
	}
	for name, s := range kinds {
		t.Run(name, func(t *testing.T) {
			before := len(l.Origins.Host("good.test").Requests())
			s.Expect(t, []string{
				"dns allow rule_allow good.test", "conn allow rule_allow good.test", "http allow rule_allow good.test",
			}, func() {
				a := s.Get(t, "https://good.test/hello", "Authorization: Bearer $API_KEY")
				if a.Status != 200 || !strings.Contains(a.Body, "/hello") {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			})
			got := l.Origins.Host("good.test").Requests()[before:]
			if len(got) != 1 || got[0].Header["Authorization"][0] != "Bearer REAL-VALUE" {
				t.Errorf("the origin saw %+v", got)
			}
			s.Expect(t, []string{"dns deny host_not_allowed evil.test", "conn deny host_not_allowed evil.test", "http deny host_not_allowed evil.test"}, func() {
				if a := s.Get(t, "https://evil.test/"); a.Status != 403 || a.Reason() != "host_not_allowed" {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			})
		})
	}
	if q := l.DNS.Asked("evil"); len(q) > 0 {
		t.Errorf("asked upstream: %v", q)
	}
}

// TestLinksGoWithTheirTest: the link of a sandbox is gone when its test is
// over, though something still holds the namespace behind it.
func TestLinksGoWithTheirTest(t *testing.T) {
	l, outer := lab.New(t), t
	t.Run("sandbox", func(t *testing.T) {
		g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": "sandbox \"s\" {\n  match { cidrs = [\"10.66.1.0/24\"] }\n}\n"}, Interfaces: []string{"sb*"}})
		held, err := g.Interface(t, "s", 1).NS.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		outer.Cleanup(func() { _ = held.Close() })
	})
	if err := l.GW.Do(func() error { _, err := net.InterfaceByName("sb1"); return err }); err == nil {
		t.Error("the link sb1 is still there")
	}
}

// TestWatchesGiveTheirAddressesBack: there may be more of them, one after
// another, than there are addresses, whatever else has taken a number.
func TestWatchesGiveTheirAddressesBack(t *testing.T) {
	l := lab.New(t)
	for range 110 {
		t.Run("", func(t *testing.T) {
			w := l.Watch(t)
			if n := w.Packets(t); n != 0 {
				t.Errorf("%d packets before any was sent", n)
			}
			l.Unique("x")
		})
	}
}

// TestStraysAreCounted holds that the counters of the net count: a packet
// from the gateway's host with another source must be seen.
func TestStraysAreCounted(t *testing.T) {
	l, err := lab.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SendStray(); err != nil {
		t.Error(err)
	}
	if n, err := l.Strays(); n == 0 || err != nil {
		t.Errorf("%d strays were counted: %v", n, err)
	}
	if err := l.Close(); err == nil {
		t.Error("the lab closed without complaint")
	}
}

// TestNothingIsLeft holds that a lab leaves no namespace, folder or mount.
func TestNothingIsLeft(t *testing.T) {
	t.Run("used", func(t *testing.T) {
		l := lab.New(t)
		text := l.MustPolicy(t, policy, "REAL-VALUE")
		l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": text}}).Attach(t, "s1")
	})
	mine := fmt.Sprintf("splab-%d-", os.Getpid())
	for _, name := range lab.Namespaces() {
		if strings.HasPrefix(name, mine) {
			t.Errorf("namespace %s is left", name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), mine) {
		t.Errorf("a mount is left:\n%s", mounts)
	}
}
