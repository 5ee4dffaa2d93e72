//go:build linux

package closed_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/test/closed"
	"sallyport/test/lab"
)

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
// there and dead; a gateway whose policy or daemon file is broken locks them too.
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
		"a daemon file that is wrong": func(t *testing.T, l *lab.Lab, config string) {
			text, err := os.ReadFile(config)
			must(t, err)
			wrong := config + ".wrong"
			must(t, os.WriteFile(wrong, append(text, "upstream { ca_file = \"/nowhere.pem\" }\n"...), 0o600))
			if out, err := serve(t, l, "--config", wrong); err == nil || !strings.Contains(out, "ca_file") {
				t.Fatalf("%v: %s", err, out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := lab.New(t)
			config := filepath.Join(t.TempDir(), "sallyport.hcl")
			must(t, os.WriteFile(config, fmt.Appendf(nil, "state = %q\ncapture \"later\" { interface = [\"nv*\", \"br-late\"] }\n", filepath.Join(t.TempDir(), "state")), 0o600))
			lock(t, l, config)
			ip(t, l.GW, "link add br-late type bridge")
			bridged := link(t, l, "port1", 97)
			ip(t, l.GW, "addr flush dev port1", "link set port1 master br-late", "addr add 10.66.97.1/24 dev br-late", "addr add fd66:97::1/64 dev br-late nodad", "link set br-late up")
			list := []*closed.Sandbox{
				{Capture: "bridge", NS: bridged, Watch: l.Watch(t), From4: address4(97), From6: address6(97)},
				{Capture: "interface", NS: link(t, l, "nv1", 98), Watch: l.Watch(t), From4: address4(98), From6: address6(98)},
			}
			t.Run("never started", func(t *testing.T) { closed.NothingArrives(t, list) })
			if out, err := serve(t, l, "--lock", "--config", config); err != nil { // as at the next boot of an engine: now with routes for what is there
				t.Fatalf("%v: %s", err, out)
			}
			shell(t, l, "nft flush ruleset; test $(cat /proc/sys/net/ipv4/ip_forward) = 1")
			t.Run("never started, the host's rules flushed", func(t *testing.T) { closed.NothingArrives(t, list) })
			if out, err := serve(t, l, "--remove"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := ruleset(l); err != nil || strings.Contains(out, "sallyport") || strings.Contains(out, "unreachable") || strings.Contains(out, "2132") {
				t.Errorf("left after --remove: %v\n%s", err, out)
			}
		})
	}
}

func shell(t *testing.T, l *lab.Lab, script string) {
	t.Helper()
	must(t, l.GW.Do(func() error {
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", script, err, out)
		}
		return err
	}))
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
	shell(t, l, "nft add table inet others; nft add chain inet others c '{ type filter hook forward priority 0; }'; nft add rule inet others c counter; ip rule add iif lo table 77 priority 700")
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
