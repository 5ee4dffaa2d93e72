//go:build linux

package closed_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/test/lab"
)

// ip runs commands of iproute2 on the gateway's host or in a namespace.
func ip(t *testing.T, n *lab.Namespace, lines ...string) {
	t.Helper()
	for _, line := range lines {
		must(t, n.Do(func() error {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
			return nil
		}))
	}
}

// linked makes a sandbox whose link to the gateway's host appears now, and whose
// default route it is, whoever holds it.
func linked(t *testing.T, l *lab.Lab, link string, n int) one {
	t.Helper()
	ns, err := l.Namespace(link)
	must(t, err)
	ip(t, l.GW, fmt.Sprintf("link add %s type veth peer name eth0 netns %s", link, ns.Name),
		fmt.Sprintf("addr add 10.66.%d.1/24 dev %s", n, link), fmt.Sprintf("addr add fd66:%d::1/64 dev %s nodad", n, link), "link set "+link+" up")
	ip(t, ns, fmt.Sprintf("addr add 10.66.%d.2/24 dev eth0", n), fmt.Sprintf("addr add fd66:%d::2/64 dev eth0 nodad", n), "link set eth0 up",
		fmt.Sprintf("route add default via 10.66.%d.1", n), fmt.Sprintf("-6 route add default via fd66:%d::1", n))
	return one{kind: link, s: &lab.Sandbox{Lab: l, Name: "if", NS: ns}, watch: l.Watch(t),
		from4: netip.MustParseAddr(fmt.Sprintf("10.66.%d.2", n)), from6: netip.MustParseAddr(fmt.Sprintf("fd66:%d::2", n))}
}

func serve(t *testing.T, l *lab.Lab, args ...string) (string, error) {
	t.Helper()
	var out []byte
	err := l.GW.Do(func() (err error) {
		out, err = exec.Command(l.Binary, append([]string{"serve"}, args...)...).CombinedOutput()
		return err
	})
	return string(out), err
}

// TestNothingLeavesBeforeTheGatewayHasEverRun: with the lock, a bridge and links
// that appear later are held on a host that forwards, as if the gateway were
// there and dead; a gateway whose policy is broken locks them too.
func TestNothingLeavesBeforeTheGatewayHasEverRun(t *testing.T) {
	for name, lock := range map[string]func(t *testing.T, l *lab.Lab, config string){
		"locked at boot": func(t *testing.T, l *lab.Lab, config string) {
			for range 2 { // again: nothing changes
				if out, err := serve(t, l, "--lock", "--config", config); err != nil || out != "" {
					t.Fatalf("%v: %s", err, out)
				}
			}
		},
		"a gateway that cannot start": func(t *testing.T, l *lab.Lab, config string) {
			policy := filepath.Join(filepath.Dir(config), "policy.hcl")
			must(t, os.WriteFile(policy, []byte("sandbox {"), 0o600))
			if out, err := serve(t, l, "--config", config, "--policy", policy); err == nil {
				t.Fatalf("it started: %s", out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := lab.New(t)
			config := filepath.Join(t.TempDir(), "sallyport.hcl")
			must(t, os.WriteFile(config, fmt.Appendf(nil, "state = %q\ncapture \"later\" { interface = [\"nv*\", \"br-late\"] }\n", filepath.Join(t.TempDir(), "state")), 0o600))
			lock(t, l, config)
			ip(t, l.GW, "link add br-late type bridge")
			bridged := linked(t, l, "port1", 97)
			ip(t, l.GW, "addr flush dev port1", "link set port1 master br-late", "addr add 10.66.97.1/24 dev br-late", "addr add fd66:97::1/64 dev br-late nodad", "link set br-late up")
			list := []one{bridged, linked(t, l, "nv1", 98)}
			hold := func(state string) {
				t.Helper()
				for _, o := range list {
					o.send(t, o.attempts())
					o.knock()
					if n := o.watch.Packets(t); n != 0 {
						t.Fatalf("%s, %s: %d packets arrived in the net", state, o.kind, n)
					}
				}
			}
			hold("never started")
			if out, err := serve(t, l, "--lock", "--config", config); err != nil { // as at the next boot of an engine: now with routes for what is there
				t.Fatalf("%v: %s", err, out)
			}
			flush(t, l)
			hold("never started, the host's rules flushed")
			if out, err := serve(t, l, "--remove"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := ruleset(l); err != nil || strings.Contains(out, "sallyport") || strings.Contains(out, "unreachable") || strings.Contains(out, "2132") {
				t.Errorf("left after --remove: %v\n%s", err, out)
			}
		})
	}
}

// ruleset is what the gateway's host has of rules and routes.
func ruleset(l *lab.Lab) (string, error) {
	var out []byte
	err := l.GW.Do(func() (err error) {
		out, err = exec.Command("sh", "-c", "exec 2>/dev/null; nft list ruleset; ip rule; ip -6 rule; ip route show table all type unreachable; ip -6 route show table 21329; ip route show table 21328; true").CombinedOutput()
		return err
	})
	return string(out), err
}

// TestLockLeavesOthersAlone: rules and routes of others are as they were.
func TestLockLeavesOthersAlone(t *testing.T) {
	l := lab.New(t)
	must(t, l.GW.Do(func() error {
		out, err := exec.Command("sh", "-c", "nft add table inet others; nft add chain inet others c '{ type filter hook forward priority 0; }'; nft add rule inet others c counter; ip rule add iif lo table 77 priority 700").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}))
	before, err := ruleset(l)
	must(t, err)
	config := filepath.Join(t.TempDir(), "sallyport.hcl")
	must(t, os.WriteFile(config, []byte("capture \"a\" { interface = [\"nv*\", \"br-late\"] }\ncapture \"b\" { tap = [\"vm1\"] }\n"), 0o600))
	for _, args := range [][]string{{"--lock", "--config", config}, {"--remove"}, {"--remove"}} {
		if out, err := serve(t, l, args...); err != nil {
			t.Fatalf("serve %v: %v: %s", args, err, out)
		}
	}
	if after, err := ruleset(l); err != nil || after != before {
		t.Errorf("%v: before\n%s\nafter\n%s", err, before, after)
	}
	for text, want := range map[string]string{
		`capture "x" { interface = ["br-?"] }`:  `sallyport.hcl:1: capture "x": interface "br-?": is neither a name`,
		`capture "x" { interface = ["*"] }`:     "names the uplink too",
		`capture "x" { interface = ["up*"] }`:   "uplink",
		`capture "x" { engine = "dockyard" }`:   "none of docker, podman",
		`capture "x" { interfaces = ["br-1"] }`: "has errors",
	} {
		must(t, os.WriteFile(config, []byte(text+"\n"), 0o600))
		if out, err := serve(t, l, "--lock", "--config", config); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v: %s", text, err, out)
		}
	}
}
