//go:build linux

// Package captures_test measures what captures cost: memory of many sandboxes
// at rest, and throughput of one kind of capture against another.
package captures_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/test/lab"
)

// plainGateway starts a daemon that was built without the race detector, as
// releases are.
func plainGateway(t testing.TB, l *lab.Lab, o lab.GatewayOptions) (g *lab.Gateway, pid int) {
	t.Helper()
	binary := filepath.Join(l.Dir, "plain")
	if out, err := exec.Command("go", "build", "-o", binary, "sallyport/cmd/sallyport").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l.Binary = binary
	g = l.Gateway(t, o)
	return g, g.PID()
}

// memory is what a process has, in bytes: RssAnon is its own, VmRSS has the
// pages of its program too.
func memory(t testing.TB, pid int, field string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, field+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatalf("no %s in %s", field, b)
	return 0
}

// descriptors is how many files a process has open.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func median[T int64 | float64 | time.Duration](list []T) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
}
