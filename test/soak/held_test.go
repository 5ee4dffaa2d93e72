//go:build linux

package soak_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport/test/lab"
)

// maxMemory is what a gateway under this traffic never takes, in bytes. With
// the race detector it is far more than without.
const maxMemory = 2 << 30

// held is what a gateway holds at one moment.
type held struct {
	goroutines, descriptors int
	memory                  int // resident, without mapped files, in bytes
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d MiB", h.goroutines, h.descriptors, h.memory>>20)
}

// holds asks what the gateway holds now.
func holds(t *testing.T, g *lab.Gateway) held {
	t.Helper()
	var h held
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.PID()))
	if err != nil {
		t.Fatal(err)
	}
	h.descriptors = len(fds)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	h.memory, h.goroutines = kib<<10, goroutines(t, g)
	return h
}

// goroutines reads their number from the profile on the control socket.
func goroutines(t *testing.T, g *lab.Gateway) int {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", g.Socket())
	}}}
	resp, err := c.Get("http://gateway/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, total, _ := strings.Cut(strings.TrimSpace(line), "total ")
	n, err := strconv.Atoi(total)
	if err != nil {
		t.Fatalf("not the profile of goroutines: %q", line)
	}
	return n
}

// settleTime is how long a gateway may take to let go of what it no longer
// needs: idle connections of both sides among it.
const settleTime = 20 * time.Second

// settled returns the least that the gateway holds while it has nothing to do.
func settled(t *testing.T, g *lab.Gateway) held {
	t.Helper()
	least := holds(t, g)
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		h := holds(t, g)
		least.goroutines = min(least.goroutines, h.goroutines)
		least.descriptors = min(least.descriptors, h.descriptors)
		least.memory = min(least.memory, h.memory)
	}
	return least
}
