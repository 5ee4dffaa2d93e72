//go:build linux

// Package clients_test drives the programs that people run in sandboxes, as
// they are and with nothing configured: what `sallyport run` gives them must
// do. The README's table of clients is that of these tests.
package clients_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sallyport/test/lab"
)

// value is what the secret API_KEY stands for. No client may ever see it.
const value = "REAL-4be1f09c7d23a85e61-value"

// modules is where test/deps.sh installs what the npm registry has.
const modules = "/var/cache/sallyport-test/npm/node_modules"

// world is what all tests share. TestMain sets it.
var world struct {
	lab   *lab.Lab
	tools string // a folder with a static Go program, which sandboxes share
}

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("4") // clients wait a lot, and start slowly
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		return 1
	}
	world.lab, world.tools = l, filepath.Join(l.Dir, "tools")
	code := 1
	if err := buildTools(); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
	} else {
		code = m.Run()
	}
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		code = 1
	}
	return code
}

func buildTools() error {
	if _, err := os.Stat(modules); err != nil {
		return fmt.Errorf("%w; sh test/deps.sh installs it", err)
	}
	if err := os.Mkdir(world.tools, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(world.tools, "probe"), "sallyport/test/e2e/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the Go client: %w\n%s", err, out)
	}
	return nil
}

// origin is the log of a name.
func origin(name string) *lab.Vhost { return world.lab.Origins.Host(name) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
