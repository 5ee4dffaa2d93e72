//go:build linux

package closed

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sallyport/test/lab"
)

// fate is what becomes of a gateway and its rules.
type fate struct {
	name string
	come func(t testing.TB, s *Sandbox) error
	// starts says that it begins with a start of the gateway.
	starts bool
}

// fates follow one another. With each, everything is tried from inside, and
// nothing may arrive outside.
func fates() []fate {
	end := func(sig syscall.Signal) func(testing.TB, *Sandbox) error {
		return func(_ testing.TB, s *Sandbox) error { return s.End(sig) }
	}
	signal := func(sig syscall.Signal) func(testing.TB, *Sandbox) error {
		return func(_ testing.TB, s *Sandbox) error { return syscall.Kill(s.PID(), sig) }
	}
	return []fate{
		{"served", nil, true},
		{"out of descriptors", withoutDescriptors, false},
		{"frozen", signal(syscall.SIGSTOP), false},
		{"frozen, rules flushed", flush, false},
		{"up, rules flushed", signal(syscall.SIGCONT), false},
		{"killed, rules flushed", end(syscall.SIGKILL), false},
		{"killed", end(syscall.SIGKILL), true},
		{"stopped", end(syscall.SIGTERM), true},
		{"stopped, rules flushed", flush, false},
		{"upgraded", upgrade, true},
	}
}

// Hold holds that nothing of the sandboxes arrives outside, whatever becomes of
// their gateways, which have not been started. Then it takes everything away
// with "serve --remove" and holds that what others have is as it was, and that
// those with a way out do get out: what was tried was no idle try.
func Hold(t *testing.T, l *lab.Lab, list []*Sandbox) {
	serve(t, l, "--remove") // what other tests have left
	others(t, l)
	before := settings(t, l)
	for _, s := range list {
		if s.config != "" {
			serve(t, l, "--lock", "--config", s.config)
		}
	}
	binary := l.Binary
	file, err := newer(l)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { l.Binary = binary }()
	if !t.Run("never started", func(t *testing.T) { NothingArrives(t, list) }) {
		return
	}
	rules := map[*Sandbox]int{}
	for _, f := range fates() {
		if f.name == "frozen" {
			for _, s := range list {
				rules[s] = s.rules(t)
			}
		}
		if f.name == "upgraded" {
			var once sync.Once
			f.come = func(t testing.TB, s *Sandbox) error {
				once.Do(func() { l.Binary = file })
				return upgrade(t, s)
			}
		}
		if !t.Run(f.name, func(t *testing.T) { f.comes(t, list) }) {
			return
		}
	}
	for _, s := range list {
		if after := s.rules(t); after != rules[s] {
			t.Errorf("%s: there were %d rules, chains and sets when the gateway first served, and are %d after it did again", s.Capture, rules[s], after)
		}
	}
	t.Run("removed", func(t *testing.T) { removed(t, l, list, before) })
}

// HoldRun is Hold for a sandbox that is there only as long as its gateway, which
// runs. Its namespace outlives both here.
func HoldRun(t *testing.T, s *Sandbox) {
	for _, f := range fates() {
		if !f.starts && f.name != "stopped, rules flushed" && !t.Run(f.name, func(t *testing.T) { f.comes(t, []*Sandbox{s}) }) {
			return
		}
	}
}

// comes lets a fate come over all sandboxes and tries everything.
func (f fate) comes(t *testing.T, list []*Sandbox) {
	if f.starts {
		each(t, list, func(s *Sandbox) error { return s.Start() })
		for _, s := range list {
			s.Served(t)
		}
	}
	if f.come != nil {
		each(t, list, func(s *Sandbox) error { return f.come(t, s) })
	}
	NothingArrives(t, list)
	if f.name == "out of descriptors" {
		each(t, list, func(s *Sandbox) error { return limit(s, 512) })
		for _, s := range list {
			s.Served(t)
		}
	}
}

// NothingArrives tries everything from inside and holds that nothing arrives
// outside.
func NothingArrives(t *testing.T, list []*Sandbox) {
	each(t, list, (*Sandbox).try)
	for _, s := range list {
		t.Run(s.Capture, func(t *testing.T) {
			if n := s.Watch.Packets(t); n != 0 {
				t.Errorf("%d packets arrived in the net", n)
			}
		})
	}
}

// try tries everything from inside.
func (s *Sandbox) try() error {
	err := s.send(s.attempts())
	s.knock()
	return err
}

// withoutDescriptors leaves a gateway none to open.
func withoutDescriptors(_ testing.TB, s *Sandbox) error { return limit(s, 1) }

// limit is set as the gateway's own user: nobody else may.
func limit(s *Sandbox, soft uint64) error {
	cmd := exec.Command("prlimit", "--pid", fmt.Sprint(s.PID()), fmt.Sprintf("--nofile=%d:", soft))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &s.Who}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("prlimit: %w: %s", err, out)
	}
	return nil
}

// upgrade ends a gateway in order and starts another program in its stead.
// Meanwhile everything is tried without a pause.
func upgrade(t testing.TB, s *Sandbox) error {
	done, tries := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-done:
				tries <- nil
				return
			default:
				if err := s.try(); err != nil {
					tries <- err
					return
				}
			}
		}
	}()
	err := s.End(syscall.SIGTERM)
	if err == nil {
		err = s.Start()
	}
	close(done)
	if tried := <-tries; err == nil {
		err = tried
	}
	if err == nil {
		s.Served(t)
	}
	return err
}

// flush takes the gateway's nft tables away by hand, on a host that forwards.
func flush(_ testing.TB, s *Sandbox) error {
	for _, ns := range s.Rules {
		err := ns.Do(func() error {
			script := "PATH=$PATH:/usr/sbin:/sbin; sysctl -qw net.ipv4.ip_forward=1; sysctl -qw net.ipv6.conf.all.forwarding=1; " +
				"nft list tables | while read -r _ family name; do case $name in " + s.tables() + ") nft delete table $family $name 2>/dev/null;; esac; done; " + // another sandbox's hand may be quicker
				"nft list tables | while read -r _ _ name; do case $name in " + s.tables() + ") echo $name is still there; exit 1;; esac; done"
			if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
				return fmt.Errorf("flush: %w: %s", err, out)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rules is how many things of nft hold the sandbox.
func (s *Sandbox) rules(t testing.TB) (n int) {
	t.Helper()
	for _, ns := range s.Rules {
		err := ns.Do(func() error {
			out, err := exec.Command("nft", "-a", "list", "ruleset").CombinedOutput()
			n += strings.Count(string(out), "# handle ")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (s *Sandbox) tables() string {
	if s.Tables == nil {
		return "sallyport*"
	}
	return strings.Join(s.Tables, "|")
}

// removed ends the gateways and removes what they have left, twice.
func removed(t *testing.T, l *lab.Lab, list []*Sandbox, before string) {
	each(t, list, func(s *Sandbox) error { return s.End(syscall.SIGTERM) })
	NothingArrives(t, list)
	for range 2 {
		serve(t, l, "--remove")
	}
	if after := settings(t, l); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	each(t, list, (*Sandbox).try)
	for _, s := range list {
		if n := s.Watch.Packets(t); (n > 0) != s.Open {
			t.Errorf("%s: %d packets arrived in the net once the rules were gone", s.Capture, n)
		}
	}
}

// others are rules and routes beside the gateway's.
func others(t testing.TB, l *lab.Lab) {
	t.Helper()
	shell(t, l, "nft add table inet others; nft add chain inet others c '{ type filter hook forward priority 0; }'; nft add rule inet others c accept; "+
		"ip rule add iif lo table 77 priority 700; ip -6 rule add iif lo table 77 priority 700; ip route add unreachable 192.0.2.0/28 table 77")
	t.Cleanup(func() {
		shell(t, l, "nft delete table inet others; ip rule del priority 700; ip -6 rule del priority 700; ip route flush table 77")
	})
}

// settings is what the gateway's host has of rules, and of routes besides those
// of its links.
func settings(t testing.TB, l *lab.Lab) string {
	t.Helper()
	return shell(t, l, "exec 2>/dev/null; nft list ruleset; ip rule; ip -6 rule; ip route show table all type unreachable; ip -6 route show table all type unreachable; "+
		"ip route show table 21328; ip -6 route show table 21328; true") // a table that was never there is an error
}

func shell(t testing.TB, l *lab.Lab, script string) string {
	t.Helper()
	var out []byte
	err := l.GW.Do(func() (err error) {
		out, err = exec.Command("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; "+script).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// serve runs "sallyport serve" with flags with which it ends at once.
func serve(t testing.TB, l *lab.Lab, args ...string) {
	t.Helper()
	shell(t, l, l.Binary+" serve "+strings.Join(args, " "))
}
