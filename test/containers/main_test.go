//go:build linux

package containers

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"sallyport/test/lab"
)

// world is the lab and the engines that all tests of the package share; each
// test has a gateway of its own.
var world struct {
	lab    *lab.Lab
	engine *engine // Docker
	podman *engine
}

// engines runs a test with each engine.
func engines(t *testing.T, test func(t *testing.T, e *engine)) {
	t.Helper()
	for _, e := range []*engine{world.engine, world.podman} {
		t.Run(e.kind, func(t *testing.T) { test(t, e) })
	}
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) (code int) {
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	world.lab = l
	if err := filterBridges(false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		for _, e := range []*engine{world.engine, world.podman} {
			if e != nil {
				err = errors.Join(err, e.close())
			}
		}
		if err = errors.Join(err, l.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if world.engine, err = startEngine(l); err != nil {
		return 1
	}
	if world.podman, err = startPodman(l); err != nil {
		return 1
	}
	return m.Run()
}

// patience is how long a test waits for what an engine or the gateway does in
// its own time: a gateway asks an engine that was away again after up to 5 s.
const patience = 30 * time.Second

// filterBridges makes the gateway's host show bridged packets to the rules for
// routed ones, or not.
func filterBridges(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	return world.lab.GW.Do(func() error {
		for _, name := range []string{"iptables", "ip6tables"} {
			err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+name, []byte(value), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without it
				return err
			}
		}
		return nil
	})
}
