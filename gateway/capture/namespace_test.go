//go:build linux

package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newNamespace makes a network namespace that lives as long as the test.
func newNamespace(t testing.TB) *os.File {
	t.Helper()
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread must keep its namespace.
			inner := make(chan result)
			go func() {
				runtime.LockOSThread()
				f, err := unshareNetwork()
				inner <- result{f, err}
			}()
			done <- <-inner
			runtime.UnlockOSThread()
			return
		}
		f, err := unshareNetwork()
		done <- result{f, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.file.Close() })
	return r.file
}

func unshareNetwork() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, os.NewSyscallError("unshare", err)
	}
	return os.Open("/proc/thread-self/ns/net")
}

// inside runs f in ns and fails the test with its error.
func inside(t *testing.T, ns *os.File, f func() error) {
	t.Helper()
	if err := inNamespace(ns, f); err != nil {
		t.Fatal(err)
	}
}

// namespacePath names ns by a path that OpenNamespace can open.
func namespacePath(ns *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", ns.Fd()) }

// captureNamespace makes and captures a namespace; its sockets are closed by
// the test's end.
func captureNamespace(t *testing.T) (*os.File, *Sockets) {
	t.Helper()
	ns := newNamespace(t)
	s, err := OpenNamespace(namespacePath(ns), NamespaceOptions{Interface: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return ns, s
}

// serveDestination answers every connection with "DESTINATION SOURCE".
func serveDestination(t *testing.T, s *Sockets) {
	t.Helper()
	for _, l := range append(append([]net.Listener{}, s.TCP...), s.DNSListeners...) {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					c.SetDeadline(time.Now().Add(5 * time.Second))
					io.WriteString(c, c.LocalAddr().String())
				}()
			}
		}()
	}
}

// ask connects to address and returns what the other side says.
func ask(address string) (string, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestNET01EveryPortArrivesWithItsDestination(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	serveDestination(t, s)
	for _, address := range []string{
		"192.0.2.10:443", "198.51.100.1:22", "203.0.113.10:1", "203.0.113.10:65535", "192.0.2.53:53",
		"10.0.0.1:5432", "169.254.169.254:80", "127.0.0.53:53", "127.0.0.1:53",
		"[2001:db8::10]:443", "[2001:db8::10]:22", "[fe80::5%lo]:8443", "[fd00::5]:8443", "[2001:db8::53]:53", "[::1]:53",
	} {
		t.Run(address, func(t *testing.T) {
			inside(t, ns, func() error {
				got, err := ask(address)
				if err == nil && got != strings.Replace(address, "%lo", "", 1) {
					err = fmt.Errorf("destination %q, want %q", got, address)
				}
				return err
			})
		})
	}
}

func TestPOL16PortSweep(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	serveDestination(t, s)
	inside(t, ns, func() error {
		for port := 1; port <= 65535; port += 127 { // 516 ports, the last of them 65406
			for _, host := range []string{"203.0.113.10", "2001:db8::10"} {
				address := net.JoinHostPort(host, strconv.Itoa(port))
				if got, err := ask(address); err != nil || got != address {
					return fmt.Errorf("%s: %q, %v", address, got, err)
				}
			}
		}
		return nil
	})
}

func TestNET01IPv6TurnedOffIsCapturedToo(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns := newNamespace(t)
	inside(t, ns, func() error { return os.WriteFile(disableIPv6, []byte("1"), 0) })
	s, err := OpenNamespace(namespacePath(ns), NamespaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	serveDestination(t, s)
	inside(t, ns, func() error { _, err := ask("[2001:db8::10]:443"); return err })
}

func TestOwnLoopbackStaysTheSandboxes(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	serveDestination(t, s)
	for _, address := range []string{"127.0.0.1:0", "127.1.2.3:0", "[::1]:0", "0.0.0.0:0"} {
		t.Run(address, func(t *testing.T) {
			inside(t, ns, func() error {
				l, err := net.Listen("tcp", address)
				if err != nil {
					return err
				}
				defer l.Close()
				go func() {
					if c, err := l.Accept(); err == nil {
						io.WriteString(c, "own")
						c.Close()
					}
				}()
				at := strings.Replace(l.Addr().String(), "[::]", "127.0.0.1", 1)
				got, err := ask(at)
				if err == nil && got != "own" {
					err = fmt.Errorf("%s: answered by %q", at, got)
				}
				return err
			})
		})
	}
	inside(t, ns, func() error { // nobody listens: refused as on any host, not captured
		if _, err := ask("127.0.0.1:9"); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("127.0.0.1:9: %v", err)
		}
		return nil
	})
}

// echoQuestions answers every datagram with "RESOLVER DATAGRAM".
func echoQuestions(s *Sockets) {
	for _, c := range s.DNSPackets {
		go func() {
			ds := make([]Datagram, 4)
			take := func() []Datagram {
				for i := range ds {
					ds[i].B = make([]byte, 512)
				}
				return ds
			}
			for {
				n, err := c.ReadBatch(take, func() {})
				if err != nil {
					return
				}
				for i := range ds[:n] {
					ds[i].B = append([]byte(ds[i].Resolver.String()+" "), ds[i].B...)
				}
				c.WriteBatch(ds[:n])
			}
		}()
	}
}

// question asks resolver, over a socket that takes answers from that address
// alone.
func question(resolver string) error {
	c, err := net.Dial("udp", resolver)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("q")); err != nil {
		return err
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if want := resolver + " q"; err == nil && string(b[:n]) != want {
		err = fmt.Errorf("answer %q, want %q", b[:n], want)
	}
	return err
}

func TestDNS03AnyResolverIsOurs(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	echoQuestions(s)
	for _, resolver := range []string{
		"8.8.8.8:53", "192.0.2.53:53", "127.0.0.53:53", "127.0.0.1:53", "192.0.0.8:53",
		"[2001:4860:4860::8888]:53", "[::1]:53",
	} {
		t.Run(resolver, func(t *testing.T) {
			inside(t, ns, func() error { return question(resolver) })
		})
	}
}

// next returns the first packet of the log that want accepts.
func next(t *testing.T, log *PacketLog, want func(Packet) bool) Packet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		p, err := log.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want(p) {
			return p
		}
		t.Logf("also %+v", p)
	}
}

func TestUDP01RefusedAtOnce(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	for _, address := range []string{"203.0.113.10:443", "[2001:db8::10]:443", "192.0.2.1:123"} {
		t.Run(address, func(t *testing.T) {
			refused := func() (took time.Duration) {
				inside(t, ns, func() error {
					c, err := net.Dial("udp", address)
					if err != nil {
						return err
					}
					defer c.Close()
					c.SetDeadline(time.Now().Add(5 * time.Second))
					start := time.Now()
					if _, err := c.Write([]byte("quic")); err != nil {
						return err
					}
					_, err = c.Read(make([]byte, 16))
					took = time.Since(start)
					if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
						return fmt.Errorf("not refused: %v", err)
					}
					return nil
				})
				return took
			}
			// The kernel refuses at once; who asks may have to wait for its turn.
			took := refused()
			for range 4 {
				if took > 200*time.Millisecond {
					took = refused()
				}
			}
			if took > 200*time.Millisecond {
				t.Errorf("refused after %v", took)
			}
			p := next(t, s.Packets, func(p Packet) bool { return p.Dst == netip.MustParseAddrPort(address) })
			if p.Verdict != VerdictDeny || p.Proto != unix.IPPROTO_UDP ||
				p.Interface != "test" || p.Count != 1 || p.Length == 0 || p.Src.Port() == 0 {
				t.Errorf("reported %+v", p)
			}
		})
	}
}

func TestNET08NamespaceIsCapturedAgain(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	_, err := OpenNamespace(namespacePath(ns), NamespaceOptions{})
	if err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Fatalf("a second gateway: %v", err)
	}
	serveDestination(t, s) // the failed one has not harmed the first
	for range 3 {
		inside(t, ns, func() error {
			// Connections that live when the gateway goes, one of them to port 53.
			for _, address := range []string{"203.0.113.10:443", "203.0.113.10:53", "[2001:db8::53]:53"} {
				c, err := net.Dial("tcp", address)
				if err != nil {
					return err
				}
				t.Cleanup(func() { c.Close() })
			}
			return nil
		})
		s.Close()
		inside(t, ns, func() error {
			if _, err := ask("203.0.113.10:443"); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("gateway gone: %v, want connection refused", err)
			}
			return nil
		})
		if s, err = OpenNamespace(namespacePath(ns), NamespaceOptions{}); err != nil {
			t.Fatal(err)
		}
		serveDestination(t, s)
	}
	inside(t, ns, func() error { _, err := ask("203.0.113.10:443"); return err })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenNamespaceRefuses(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	uplink := newNamespace(t)
	inside(t, uplink, func() error { return addVeth("up0", "net0", newNamespace(t)) })
	for name, test := range map[string]struct{ path, want string }{
		"absent":    {"/nonexistent", "no such file"},
		"a file":    {"/dev/null", "is not a network namespace"},
		"pid":       {"/proc/self/ns/pid", "is not a network namespace"},
		"its own":   {"/proc/self/ns/net", "the gateway's own"},
		"an uplink": {namespacePath(uplink), "\"up0\" (veth) may lead out"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OpenNamespace(test.path, NamespaceOptions{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// BenchmarkOpenNamespace is what attaching costs a container's start.
func BenchmarkOpenNamespace(b *testing.B) {
	for b.Loop() {
		err := func() error {
			done := make(chan error)
			go func() {
				runtime.LockOSThread()
				f, err := unshareNetwork()
				if err != nil {
					done <- err
					return
				}
				defer f.Close()
				s, err := openHere(hereOptions{})
				if err == nil {
					err = s.Close()
				}
				done <- err
			}()
			return <-done
		}()
		if err != nil {
			b.Fatal(err)
		}
	}
}
