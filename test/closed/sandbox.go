//go:build linux

// Package closed holds, for each kind of capture on a host that forwards, that
// what is neither TCP nor DNS is refused fast and recorded, that nothing leaves
// whatever becomes of the gateway or of its rules, and that "serve --remove"
// takes away what is the gateway's and nothing else.
//
// Which captures are tried, and where:
//
//	run, netns, interface, bridge, tap, shared   test/closed
//	a container without a network, on a bridge   test/containers
//	a real virtual machine behind a tap          test/vm
//	explicit proxy                               test/closed: what it can hold
package closed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// Sandbox is a sandbox of one kind of capture, and how its gateway is started
// and ended.
type Sandbox struct {
	Capture string         // kind
	Name    string         // of the policy
	NS      *lab.Namespace // where it speaks, as root
	From4   netip.Addr     // its addresses
	From6   netip.Addr
	Watch   *lab.Watch // where it tries to go
	// Rules are the namespaces whose rules hold it.
	Rules []*lab.Namespace
	// Tables are the gateway's tables there that a hand may delete; default all.
	Tables []string
	// Open says that there is a way out of it that the rules close: once they
	// are removed, it is out.
	Open bool
	// Whole says that the sandbox's own kernel keeps fragments until they are
	// whole: they never leave it, and nobody could record them.
	Whole bool

	Events func(audit.Filter) []*audit.Event
	PID    func() int
	Who    syscall.Credential         // of its gateway
	End    func(syscall.Signal) error // and wait for it
	Start  func() error               // nil: without its gateway there is no sandbox
	Said   func() string              // by the gateway, on stderr
	config string
}

// Of is a sandbox of a daemon.
func Of(g *lab.Gateway, s Sandbox) *Sandbox {
	s.Events, s.PID, s.Start, s.Said, s.config = g.Events, g.PID, g.Start, g.Stderr, g.Config()
	s.End = func(sig syscall.Signal) error {
		if sig == syscall.SIGKILL {
			return g.Kill()
		}
		return g.Stop()
	}
	return &s
}

// knock tries TCP, UDP and DNS as any program does, and bound to every device,
// all at once.
func (s *Sandbox) knock() {
	to4, to6 := s.Watch.IP4.String(), s.Watch.IP6.String()
	var tries []func() error
	for _, device := range s.devices() {
		for _, to := range []string{net.JoinHostPort(to4, "443"), net.JoinHostPort(to6, "22"), net.JoinHostPort(s.Watch.Link6.String()+"%"+device, "443")} {
			for _, network := range []string{"tcp", "udp"} {
				tries = append(tries, dial(network, to, device))
			}
		}
		for _, to := range []string{to4, to6, s.Watch.Link6.String() + "%" + device, s.Watch.Group4.String(), s.Watch.Broadcast.String()} {
			tries = append(tries, dial("udp", net.JoinHostPort(to, "53"), device))
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		m := new(dns.Msg)
		m.SetQuestion("leak.test.", dns.TypeA)
		tries = append(tries, func() error {
			_, _, err := (&dns.Client{Net: network, Timeout: tryTime}).Exchange(m, net.JoinHostPort(to4, "53"))
			return err
		})
	}
	done := make(chan error, len(tries))
	for _, try := range tries {
		go func() { done <- s.NS.Do(try) }()
	}
	for range tries {
		<-done // each may be refused
	}
}

// tryTime is how long one try goes on.
const tryTime = 300 * time.Millisecond

// devices are the links of the sandbox, and none.
func (s *Sandbox) devices() []string {
	list := []string{""}
	_ = s.NS.Do(func() error { // a namespace without links has none to try
		links, err := net.Interfaces()
		for _, l := range links {
			if l.Flags&net.FlagUp != 0 && l.Flags&net.FlagLoopback == 0 {
				list = append(list, l.Name)
			}
		}
		return err
	})
	return list
}

// Addresses are those of the links of a namespace.
func Addresses(t testing.TB, ns *lab.Namespace) (out []netip.Addr) {
	t.Helper()
	err := ns.Do(func() error {
		list, err := net.InterfaceAddrs()
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out = append(out, p.Addr())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// dial sends something to an address, from a socket that is bound to a device
// unless that is "".
func dial(network, address, device string) func() error {
	bind := func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) {
			bound = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
			if bound == nil && device != "" {
				bound = unix.BindToDevice(int(fd), device)
			}
		})
		return errors.Join(err, bound)
	}
	return func() error {
		c, err := (&net.Dialer{Timeout: tryTime, Control: bind}).Dial(network, address)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(tryTime)) // shows in the write
		_, err = c.Write([]byte("leak"))
		return errors.Join(err, c.Close())
	}
}

// Served waits until the sandbox's questions are answered.
func (s *Sandbox) Served(t testing.TB) {
	t.Helper()
	inside := lab.Sandbox{NS: s.NS}
	if !lab.Within(lab.StartTime, func() bool { _, err := inside.Ask("sallyport.internal", dns.TypeA); return err == nil }) {
		t.Fatalf("%s: no question is answered:\n%s", s.Capture, s.Said())
	}
}

// each does something for all sandboxes at once, and ends the test if it fails
// for one.
func each(t testing.TB, list []*Sandbox, do func(s *Sandbox) error) {
	t.Helper()
	errs := make(chan error, len(list))
	for _, s := range list {
		go func() {
			err := do(s)
			if err != nil {
				err = fmt.Errorf("%s: %w", s.Capture, err)
			}
			errs <- err
		}()
	}
	failed := false
	for range list {
		if err := <-errs; err != nil {
			t.Error(err)
			failed = true
		}
	}
	if failed {
		t.FailNow()
	}
}

// newer is another program than the gateway's that does the same.
func newer(l *lab.Lab) (string, error) {
	program, err := os.ReadFile(l.Binary)
	if err != nil {
		return "", err
	}
	file := l.Dir + "/" + l.Unique("newer")
	return file, os.WriteFile(file, append(program, "newer"...), 0o755)
}
