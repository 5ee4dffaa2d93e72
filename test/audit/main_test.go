//go:build linux

// Package audit_test holds the audit log and its alerts to what they promise,
// with a real gateway, real receivers and real faults: full and read-only file
// systems, floods, kills.
package audit_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/test/lab"
)

// world is what all tests share. TestMain sets it.
var world struct{ lab *lab.Lab }

func TestMain(m *testing.M) {
	if to := os.Getenv(flooder); to != "" {
		if err := flood(to); err != nil {
			fmt.Fprintln(os.Stderr, "flood:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("4") // the tests mostly wait
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		return 1
	}
	world.lab = l
	code := m.Run()
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		code = 1
	}
	return code
}

// begin marks a test as one that runs beside others.
func begin(t *testing.T) *lab.Lab {
	t.Helper()
	t.Parallel()
	return world.lab
}

// one is a policy of one file.
func one(text string) map[string]string {
	return map[string]string{"p.hcl": strings.ReplaceAll(text, "DOCS", lab.Documentation)}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually fails the test if f does not come true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	if !lab.Within(30*time.Second, f) {
		t.Fatalf("not within 30 s: %s", what)
	}
}

// process is a receiver's program on the gateway's host.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	out  *strings.Builder
}

// start runs a program on the gateway's host until the test ends.
func start(t *testing.T, argv ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{}), out: &strings.Builder{}}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := world.lab.GW.Start(p.cmd); err != nil {
		t.Fatalf("%s: %v; test/deps.sh installs it", argv[0], err)
	}
	go func() {
		_ = p.cmd.Wait() // killed
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the program at once.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-p.done
}

// client speaks with receivers on the gateway's host.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = world.lab.GW.Do(func() error {
			c, err = net.DialTimeout(network, address, 5*time.Second)
			return err
		})
		return c, err
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// serve runs an HTTP server on an address of the gateway's host until the test
// ends.
func serve(t *testing.T, address string, h http.Handler) *http.Server {
	t.Helper()
	l, err := world.lab.GW.Listen("tcp", address)
	must(t, err)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }() // closed below
	t.Cleanup(func() { _ = srv.Close() })
	return srv
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
