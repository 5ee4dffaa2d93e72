//go:build linux

package capture

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keptOf opens what a capture of ns would, after change has had each, and
// returns it as kept. change may close one and return another.
func keptOf(t *testing.T, ns *os.File, change func(i int, w *wanted)) []*os.File {
	t.Helper()
	var files []*os.File
	inside(t, ns, func() error {
		for i, w := range (listenOptions{families: []family{ipv4(), ipv6()}}).wanted() {
			change(i, &w)
			f, err := opened(w)
			if err != nil {
				return fmt.Errorf("%s: %w", w, err)
			}
			files = append(files, f)
		}
		return nil
	})
	t.Cleanup(func() { closeFiles(files) })
	return files
}

// opened opens a socket as a capture does.
func opened(w wanted) (*os.File, error) {
	if w.kind == unix.SOCK_DGRAM {
		return bind(w)
	}
	l, err := listen(w)
	if err != nil {
		return nil, err
	}
	defer l.Close() // the file is another descriptor
	return l.(*net.TCPListener).File()
}

func unchanged(int, *wanted) {}

// set sets an option of a socket that was kept.
func set(t *testing.T, f *os.File, level, option, value int) {
	t.Helper()
	control(t, f, func(fd int) error { return unix.SetsockoptInt(fd, level, option, value) })
}

// TestKeptSocketsAreUsed: a connection that waited in them is accepted, at its
// original destination.
func TestKeptSocketsAreUsed(t *testing.T) {
	ns, s := captureNamespace(t)
	files, err := s.Listening()
	if err != nil {
		t.Fatal(err)
	}
	port := s.TCP[0].Addr().String()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var c net.Conn
	inside(t, ns, func() (err error) {
		c, err = net.DialTimeout("tcp", "203.0.113.9:443", 5*time.Second)
		return err
	})
	defer c.Close()
	if _, err := io.WriteString(c, "early"); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files) // their order says nothing
	dropped := 0
	k := &Kept{Files: files, Drop: func() error { dropped++; return nil }}
	s, err = OpenNamespace(namespacePath(ns), NamespaceOptions{Kept: k})
	k.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Reused || dropped != 0 || s.TCP[0].Addr().String() != port {
		t.Fatalf("reused %v, dropped %d times, %s instead of %s", s.Reused, dropped, s.TCP[0].Addr(), port)
	}
	got, err := s.TCP[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(got, b); err != nil || string(b) != "early" || got.LocalAddr().String() != "203.0.113.9:443" {
		t.Errorf("%q at %s: %v", b, got.LocalAddr(), err)
	}
}

// TestForgedSocketsAreNotUsed: what is not in every respect that which the
// capture would open is let go of, all of it, before others are opened.
func TestForgedSocketsAreNotUsed(t *testing.T) {
	for name, forge := range map[string]func(t *testing.T, ns *os.File) []*os.File{
		"of another namespace": func(t *testing.T, _ *os.File) []*os.File { return keptOf(t, newNamespace(t), unchanged) },
		"one of another namespace": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			files[5].Close()
			return append(files[:5:5], keptOf(t, newNamespace(t), unchanged)[5])
		},
		"one is missing": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			files[3].Close()
			return slices.Delete(files, 3, 4)
		},
		"one too many": func(t *testing.T, ns *os.File) []*os.File {
			var other *os.File
			inside(t, ns, func() (err error) {
				other, err = opened(wanted{family: ipv4(), kind: unix.SOCK_STREAM, at: netip.AddrPortFrom(ownAddr4(), 0)})
				return err
			})
			t.Cleanup(func() { other.Close() })
			return append(keptOf(t, ns, unchanged), other)
		},
		"another address": func(t *testing.T, ns *os.File) []*os.File {
			return keptOf(t, ns, func(i int, w *wanted) {
				if i == 0 {
					w.at = netip.MustParseAddrPort("192.0.0.9:0")
				}
			})
		},
		"another port": func(t *testing.T, ns *os.File) []*os.File {
			return keptOf(t, ns, func(i int, w *wanted) {
				if i == 2 {
					w.at = netip.AddrPortFrom(w.at.Addr(), 5353)
				}
			})
		},
		"bound to a device": func(t *testing.T, ns *os.File) []*os.File {
			return keptOf(t, ns, func(_ int, w *wanted) { w.device = loopback })
		},
		"a port that others may share": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			set(t, files[2], unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			return files
		},
		"a mark": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			set(t, files[0], unix.SOL_SOCKET, unix.SO_MARK, 7)
			return files
		},
		"not transparent": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			set(t, files[4], unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 0)
			return files
		},
		"no original destination": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			set(t, files[5], unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR, 0)
			return files
		},
		"connected": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			control(t, files[2], func(fd int) error {
				return unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: ownAddr4().As4()})
			})
			return files
		},
		"no socket at all": func(t *testing.T, ns *os.File) []*os.File {
			files := keptOf(t, ns, unchanged)
			files[1].Close()
			f, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			files[1] = f
			return files
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			inside(t, ns, func() error { // where a capture was before
				s, err := openHere(hereOptions{})
				if err != nil {
					return err
				}
				return s.Close()
			})
			dropped := 0
			k := &Kept{Files: forge(t, ns)}
			forged := slices.Clone(k.Files)
			k.Drop = func() error {
				for _, f := range forged {
					if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
						t.Errorf("a socket is still open: %v", err)
					}
				}
				dropped++
				return nil
			}
			s, err := OpenNamespace(namespacePath(ns), NamespaceOptions{Kept: k})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if s.Reused || dropped != 1 || len(s.TCP) != 2 {
				t.Errorf("reused %v, let go of %d times, %d listeners", s.Reused, dropped, len(s.TCP))
			}
		})
	}
}

// TestKeptProxyIsUsed: an explicit proxy's socket is the one at its address.
func TestKeptProxyIsUsed(t *testing.T) {
	for _, test := range []struct {
		opened, asked string
		reused        bool
	}{
		{"127.0.0.1:0", "127.0.0.1:%d", true},
		{"[::1]:0", "[::1]:%d", true},
		{":0", ":%d", true},
		{"127.0.0.1:0", "127.0.0.2:%d", false},
		{":0", "127.0.0.1:%d", false},
	} {
		first, reused, err := Listen(test.opened, nil)
		if err != nil || reused {
			t.Fatalf("%v %v", reused, err)
		}
		files, err := (&Sockets{TCP: []net.Listener{first}}).Listening()
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf(test.asked, first.Addr().(*net.TCPAddr).Port)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		k := &Kept{Files: files}
		l, reused, err := Listen(address, k)
		k.Close()
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		if l.Close(); reused != test.reused {
			t.Errorf("%s after %s: reused %v", address, test.opened, reused)
		}
	}
}
