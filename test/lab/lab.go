//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netns"
)

// Lab is the network of one test process. Open one, or let New do it for one
// test.
type Lab struct {
	GW, Net *Namespace
	DNS     *ADNS
	Origins *Origins
	Dir     string // of everything the lab writes; others may enter it
	Binary  string // the gateway's program
	CAFile  string // of the origins' authority

	home    netns.NsHandle
	snoop   *snoop
	count   atomic.Int64 // of names that are used once
	watches atomic.Int64 // made so far
	mu      sync.Mutex
	closers []func() error
}

// New opens a lab for one test and closes it after it.
func New(t testing.TB) *Lab {
	t.Helper()
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Open builds the gateway and the network. It needs root.
func Open() (_ *Lab, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab needs root: it makes network namespaces and runs gateways as root and as an ordinary user")
	}
	if err := removeStale(); err != nil {
		return nil, err
	}
	l := &Lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.home, err = netns.Get(); err != nil {
		return nil, err
	}
	if l.Dir, err = os.MkdirTemp("", "splab-"); err != nil {
		return nil, err
	}
	l.later(func() error { return os.RemoveAll(l.Dir) })
	if err := os.Chmod(l.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := l.build(); err != nil {
		return nil, err
	}
	if l.GW, err = l.Namespace("gw"); err != nil {
		return nil, err
	}
	if l.Net, err = l.Namespace("net"); err != nil {
		return nil, err
	}
	if err := l.wire(); err != nil {
		return nil, err
	}
	return l, l.serve()
}

// serve starts the servers of the net.
func (l *Lab) serve() (err error) {
	if l.snoop, err = newSnoop(l.Net); err != nil {
		return err
	}
	if l.DNS, err = newADNS(l.Net); err != nil {
		return err
	}
	l.later(func() error { l.DNS.close(); return nil })
	if l.Origins, err = newOrigins(l.Net); err != nil {
		return err
	}
	l.later(func() error { l.Origins.close(); return nil })
	l.CAFile = filepath.Join(l.Dir, "upstream.pem")
	return os.WriteFile(l.CAFile, l.Origins.CA.PEM(), 0o644)
}

// build compiles the gateway, with the race detector if the test has it.
func (l *Lab) build() error {
	l.Binary = filepath.Join(l.Dir, "sallyport")
	args := []string{"build", "-o", l.Binary}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "sallyport/cmd/sallyport")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the gateway: %w\n%s", err, out)
	}
	return nil
}

// Namespace makes a namespace that lives as long as the lab.
func (l *Lab) Namespace(name string) (*Namespace, error) {
	n, err := newNamespace(l.home, name)
	if n != nil && err == nil {
		l.later(n.Close)
	}
	return n, err
}

// Unique returns a name that begins with stem and is not used again.
func (l *Lab) Unique(stem string) string { return fmt.Sprintf("%s%d", stem, l.count.Add(1)) }

// later adds to what Close undoes, last first.
func (l *Lab) later(f func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, f)
}

// Strays returns how many packets have arrived in the net that the gateway
// did not send.
func (l *Lab) Strays() (uint64, error) { return l.snoop.packets() }

// Close ends everything, and fails if a packet reached the net that the
// gateway did not send.
func (l *Lab) Close() error {
	var errs []error
	if l.snoop != nil {
		n, err := l.Strays()
		if err != nil || n > 0 {
			errs = append(errs, fmt.Errorf("%d packets reached the net past the gateway: %w", n, errors.Join(err, errStray)))
		}
	}
	for i := len(l.closers) - 1; i >= 0; i-- {
		errs = append(errs, l.closers[i]())
	}
	l.closers = nil
	return errors.Join(errs...)
}

var errStray = errors.New("the gateway is not the only way out")

// Peer is a scripted server of the net.
type Peer struct {
	Addr     string // address and port
	accepted atomic.Int64
	mu       sync.Mutex
	heard    []byte
}

// Accepted returns how many connections came.
func (p *Peer) Accepted() int { return int(p.accepted.Load()) }

// Heard returns what a script has noted with Hear.
func (p *Peer) Heard() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.heard)
}

// Hear notes bytes.
func (p *Peer) Hear(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, b...)
}

// Peer listens on an address and port of the net until the test ends, and
// gives each connection to script, after which it is closed.
func (l *Lab) Peer(t testing.TB, address string, script func(p *Peer, c *net.TCPConn)) *Peer {
	t.Helper()
	ln, err := l.Net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	p := &Peer{Addr: ln.Addr().String()}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			go func() {
				defer c.Close()
				if tc, ok := c.(*net.TCPConn); ok && script != nil {
					script(p, tc)
				}
			}()
		}
	}()
	return p
}
