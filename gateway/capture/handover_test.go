//go:build linux

package capture

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sandboxSocket is the descriptor over which a sandbox of these tests speaks to
// its test, and sandboxEnv tells the test binary that it is the sandbox.
const (
	sandboxSocket = 3
	sandboxEnv    = "SALLYPORT_TEST_SANDBOX"
)

// startSandbox runs this test again as a sandbox, in user and network namespaces
// of its own, and returns its sockets. end makes it go on and waits for it.
func startSandbox(t *testing.T, env ...string) (s *Sockets, end func() error) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "gateway"), os.NewFile(uintptr(pair[1]), "sandbox")
	defer theirs.Close()
	t.Cleanup(func() { ours.Close() })
	cmd := inNewNamespaces(t, t.Name())
	cmd.Env = append(append(os.Environ(), sandboxEnv+"=1"), env...)
	cmd.ExtraFiles = []*os.File{theirs}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	// Pdeathsig follows the thread that starts the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	end = func() error {
		_, werr := ours.Write([]byte("go"))
		if err := cmd.Wait(); err != nil {
			return errors.Join(err, werr, errors.New(output.String()))
		}
		return werr
	}
	data, oob := make([]byte, 1024), make([]byte, 1024)
	n, oobn, _, _, err := unix.Recvmsg(int(ours.Fd()), data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		t.Fatalf("no hand-over: %v\n%s", err, errors.Join(cmd.Wait(), errors.New(output.String())))
	}
	var l layout
	if err := json.Unmarshal(data[:n], &l); err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "handed over"))
	}
	if s, err = socketsFromFiles(files, l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, end
}

// playSandbox captures the namespace this process is in, hands the sockets over
// and runs act when the test says so. It says whether this process is a sandbox.
func playSandbox(t *testing.T, act func() error) bool {
	t.Helper()
	if os.Getenv(sandboxEnv) == "" {
		return false
	}
	runtime.LockOSThread()
	s, err := openHere(hereOptions{Interface: "run"})
	if err != nil {
		t.Fatal(err)
	}
	files, l, err := s.files()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendmsg(sandboxSocket, data, unix.UnixRights(fds...), nil, 0); err != nil {
		t.Fatal(err)
	}
	closeFiles(files)
	if _, err := unix.Read(sandboxSocket, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := act(); err != nil {
		t.Fatal(err)
	}
	return true
}

// TestHandOver: sockets made by an unprivileged sandbox work in the gateway
// outside, counters included, when the process that made them has closed its own.
func TestHandOver(t *testing.T) {
	const n = 3000
	if playSandbox(t, func() error {
		for _, address := range []string{"203.0.113.10:5432", "[2001:db8::10]:22", "192.0.2.53:53"} {
			if got, err := ask(address); err != nil || got != address {
				return fmt.Errorf("%s: %q, %v", address, got, err)
			}
		}
		if err := question("[2001:db8::53]:53"); err != nil {
			return err
		}
		return flood(n)
	}) {
		return
	}
	s, end := startSandbox(t)
	serveDestination(t, s)
	echoQuestions(s)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for total := uint64(0); total < n; {
		p := next(t, s.Packets, func(p Packet) bool { return true })
		if total += p.Count; total > n || p.Interface != "run" {
			t.Fatalf("%d packets told of %d, last %+v", total, n, p)
		}
	}
}

// TestNET07RootInTheSandboxGainsNothing: with every rule and route of its
// namespace gone, code that is root there still has no way out.
func TestNET07RootInTheSandboxGainsNothing(t *testing.T) {
	if playSandbox(t, func() error { return escape(os.Getenv("TARGETS")) }) {
		return
	}
	l, err := net.Listen("tcp4", ":0") // every address of the machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reached := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	var targets []string
	for _, a := range addresses {
		if ip := a.(*net.IPNet).IP.To4(); ip != nil {
			targets = append(targets, net.JoinHostPort(ip.String(), strconv.Itoa(port)))
		}
	}
	if c, err := net.Dial("tcp", targets[0]); err != nil {
		t.Fatalf("the target does not answer at all: %v", err)
	} else {
		<-reached
		c.Close()
	}
	s, end := startSandbox(t, "TARGETS="+strings.Join(targets, ","))
	defer s.Close()
	if err := end(); err != nil {
		t.Error(err)
	}
	select {
	case from := <-reached:
		t.Errorf("the sandbox reached the host from %s", from)
	default:
	}
	if s.TCP[0].Close() != nil {
		t.Error("the gateway lost its listener")
	}
}

// escape tears down what holds the namespace and tries to get out.
func escape(targets string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.FlushRuleset()
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	try := func() error {
		for _, target := range strings.Split(targets, ",") {
			d := net.Dialer{Timeout: 300 * time.Millisecond}
			c, err := d.Dial("tcp", target)
			if err == nil {
				c.Close()
				return fmt.Errorf("%s answers", target)
			}
		}
		return nil
	}
	if err := try(); err != nil {
		return err
	}
	for _, f := range []family{ipv4(), ipv6()} {
		if err := netlink.RouteDel(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everything(f), Table: unix.RT_TABLE_LOCAL,
			Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}); err != nil {
			return fmt.Errorf("route: %w", err)
		}
	}
	// A link of its own leads nowhere.
	if err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "out0"}}); err == nil {
		if err := configure("out0", "10.0.0.2/8"); err != nil {
			return err
		}
	}
	if err := try(); err != nil {
		return err
	}
	// Nor may it have one with its other end outside, or go there itself.
	parent := os.Getppid()
	err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out1"}, PeerName: "in1", PeerNamespace: netlink.NsPid(parent)})
	if err == nil {
		return errors.New("a link into the gateway's namespace was made")
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", parent))
	if err == nil {
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); !errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("the gateway's namespace was entered: %v", err)
		}
	}
	return nil
}

func TestSocketsFromFilesRefuses(t *testing.T) {
	file := func() *os.File {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, test := range map[string]struct {
		files int
		l     layout
	}{
		"too few":       {1, layout{}},
		"too many":      {3, layout{}},
		"negative":      {2, layout{TCP: -1, DNSPackets: 1}},
		"no listener":   {3, layout{TCP: 1}},
		"no datagrams":  {3, layout{DNSPackets: 1}},
		"not netfilter": {2, layout{}},
	} {
		t.Run(name, func(t *testing.T) {
			var files []*os.File
			for range test.files {
				files = append(files, file())
			}
			if s, err := socketsFromFiles(files, test.l); err == nil {
				t.Errorf("accepted as %+v", s)
			}
			for _, f := range files {
				if err := f.Close(); !errors.Is(err, os.ErrClosed) {
					t.Error("a file was left open")
				}
			}
		})
	}
}
