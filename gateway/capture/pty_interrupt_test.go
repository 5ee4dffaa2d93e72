//go:build linux

package capture

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// interrupted runs a launcher at a terminal of its own, whose output goes into
// a pipe, types ^C after a while, or as soon as its command runs if that is
// negative, and waits until all of it has ended. It returns how long the
// launcher had taken to start its command, 0 if it was ended before. No shell takes part: those lose a ^C themselves while they fork.
func interrupted(t *testing.T, mark string, after time.Duration) (started time.Duration) {
	t.Helper()
	master, slave := openPTY(t)
	defer master.Close()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	args := self("launch", "perl", "-e", "$| = 1; print qq(up\\n); sleep 1000", mark)
	cmd := &exec.Cmd{Path: args[0], Args: args, Dir: "/", Stdin: slave, Stdout: in, Stderr: slave,
		Env:         []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=1"},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}}
	err = cmd.Start()
	slave.Close()
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	up, closed := make(chan time.Duration, 1), make(chan struct{})
	go func() {
		defer close(closed)
		_, err := io.ReadFull(out, make([]byte, len("up\n")))
		if err == nil {
			up <- time.Since(began)
		}
		close(up)
		_, _ = io.Copy(io.Discard, out) // until the last process that can write has ended
	}()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // by the signal, or with the command's code
		<-closed       // what it had started ends a moment after it
		close(ended)
	}()
	if after < 0 {
		started = <-up
	}
	time.Sleep(after)
	if _, err := master.WriteString(ctrlC); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(expectTime):
		_ = cmd.Process.Kill()
		t.Errorf("^C typed after %v is lost", after)
	}
	return started
}

// TestTerminalInterruptIsNeverLost: whenever ^C is typed, from the first moment
// of a launcher on, launcher and command end.
func TestTerminalInterruptIsNeverLost(t *testing.T) {
	mark := fmt.Sprintf("interrupt-%d", os.Getpid())
	start := interrupted(t, mark, -1)
	if start == 0 {
		t.Fatal("the command did not start")
	}
	const rounds, atOnce = 32, 4
	slots := make(chan struct{}, atOnce)
	t.Run("rounds", func(t *testing.T) {
		for i := range rounds {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				interrupted(t, mark, start*time.Duration(i)/rounds*3/2)
			})
		}
	})
	list, err := exec.Command("ps", "-eo", "args").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(list) {
		if strings.Contains(string(line), mark) {
			t.Errorf("is left behind: %s", line)
		}
	}
}
