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

// world is the lab and the engine that all tests of the package share; each
// test has a gateway of its own.
var world struct {
	lab    *lab.Lab
	engine *engine
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) (code int) {
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	world.lab = l
	world.engine, err = startEngine(l)
	defer func() {
		if world.engine != nil {
			err = errors.Join(err, world.engine.close())
		}
		if err = errors.Join(err, l.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err != nil {
		return 1
	}
	return m.Run()
}

// within says whether f came true in time.
func within(wait time.Duration, f func() bool) bool {
	for deadline := time.Now().Add(wait); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
