//go:build linux

package capture

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be the first process of a sandbox, an attacker
// inside one, or a launcher of its own.
func TestMain(m *testing.M) {
	if handled, code := ChildMain(os.Args); handled {
		syscall.Exit(code) // the race detector makes os.Exit last a second
	}
	if len(os.Args) > 2 && os.Args[1] == "play" {
		code := play(os.Args[2], os.Args[3:])
		if os.Args[2] == "attack" {
			syscall.Exit(code)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// play runs one of the parts that tests give to other processes.
func play(part string, args []string) int {
	parts := map[string]func(args []string) error{
		"attack": playAttack,
		"launch": playLaunch,
		"victim": playVictim,
		"host":   playHost,
	}
	f, ok := parts[part]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such part:", part)
		return 1
	}
	if err := f(args); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// self is the command line that runs part of this binary, also in a sandbox
// that does not see where it lies.
func self(part string, args ...string) []string {
	return append([]string{"/proc/self/exe", "play", part}, args...)
}

// asOrdinaryUser runs the tests that match pattern once more as uid 65534.
func asOrdinaryUser(t *testing.T, pattern string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatalf("the tests of this package run as root; this is uid %d", os.Geteuid())
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", pattern, "-test.v", "-test.timeout", "5m")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "--- PASS") || strings.Contains(text, "--- SKIP") || strings.Contains(text, "no tests to run") {
		t.Fatalf("as uid 65534: %v\n%s", err, text)
	}
}

// sh is a command of the shell with nothing but a PATH.
func sh(script string, args ...string) Command {
	return Command{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}}
}

// inSandbox runs c to its end and returns what it wrote.
func inSandbox(t *testing.T, c Command) (string, Result) {
	t.Helper()
	out, r, err := runSandbox(t, c)
	if err != nil {
		t.Fatalf("run %q: %v", c.Argv, err)
	}
	return out, r
}

func runSandbox(t *testing.T, c Command) (string, Result, error) {
	t.Helper()
	var out bytes.Buffer
	r, err := runSandboxInto(t, &out, c)
	return out.String(), r, err
}

// runSandboxInto runs c to its end, and has written what c wrote to out then.
func runSandboxInto(t *testing.T, out io.Writer, c Command) (Result, error) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer read.Close()
	if c.Stdout == nil {
		c.Stdout = write
	}
	c.Stderr = write
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	s, err := Prepare(c)
	if err != nil {
		write.Close()
		return Result{}, err
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if err := s.Start(); err != nil {
		write.Close()
		return Result{}, err
	}
	write.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if _, err := io.Copy(out, read); err != nil {
			t.Errorf("output: %v", err)
		}
	}()
	r, err := s.Wait()
	<-written
	return r, err
}

// withSandbox runs f while c runs, once c has written started.
func withSandbox(t *testing.T, c Command, started string, f func()) string {
	t.Helper()
	out, done := newTranscript(), make(chan error, 1)
	go func() {
		_, err := runSandboxInto(t, out, c)
		done <- err
	}()
	for deadline := time.After(expectTime); !strings.Contains(out.String(), started); {
		select {
		case <-out.more:
		case err := <-done:
			t.Fatalf("it ended before %q: %v\n%s", started, err, out)
		case <-deadline:
			t.Fatalf("%q did not come; there was:\n%s", started, out)
		}
	}
	f()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return out.String()
}

// scratch is a directory that sandboxes see: not below /tmp.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sallyport-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// launcher starts a launcher of its own (see playLaunch), without a terminal.
func launcher(t *testing.T, argv ...string) (*exec.Cmd, *transcript) {
	t.Helper()
	args := self("launch", argv...)
	out := newTranscript()
	cmd := &exec.Cmd{Path: args[0], Args: args, Env: os.Environ(), Dir: "/", Stdout: out, Stderr: out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, out
}

// transcript collects what a process writes.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newTranscript() *transcript { return &transcript{more: make(chan struct{}, 1)} }

func (tr *transcript) Write(b []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.text.Write(bytes.ReplaceAll(b, []byte("\r"), nil))
	select {
	case tr.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

func (tr *transcript) reset() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.text.Reset()
}

// expectTime bounds how long what is expected may take to come.
const expectTime = time.Minute

// expect waits until want has been written.
func expect(t *testing.T, tr *transcript, want string) {
	t.Helper()
	deadline := time.After(expectTime)
	for {
		if strings.Contains(tr.String(), want) {
			return
		}
		select {
		case <-tr.more:
		case <-deadline:
			t.Fatalf("%q did not come; there was:\n%s", want, tr)
		}
	}
}
