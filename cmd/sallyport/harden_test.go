package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hardened is a daemon of a binary as it is released, without cgo.
type hardened struct {
	t      *testing.T
	binary string
	dir    string
	cmd    *exec.Cmd
	out    *bytes.Buffer
	exited chan error
}

func buildRelease(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sallyport")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func startHardened(t *testing.T, binary, more string) *hardened {
	t.Helper()
	h := &hardened{t: t, binary: binary, dir: t.TempDir(), out: &bytes.Buffer{}, exited: make(chan error, 1)}
	file := fmt.Sprintf("state = %q\npolicy = [%q]\ncontrol { socket = %q }\nlog { level = \"debug\" }\n%s",
		filepath.Join(h.dir, "state"), filepath.Join(h.dir, "policy.d"), h.socket(), more)
	h.write("policy.d/p.hcl", "sandbox \"ci\" {}\n")
	h.write("sallyport.hcl", file)
	h.cmd = exec.Command(binary, "serve", "--config", filepath.Join(h.dir, "sallyport.hcl"))
	h.cmd.Stderr = h.out
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.exited <- h.cmd.Wait() }()
	t.Cleanup(func() {
		_ = h.cmd.Process.Signal(syscall.SIGTERM) // may have ended
		select {
		case <-h.exited:
		case <-time.After(10 * time.Second):
			_ = h.cmd.Process.Kill()
			<-h.exited
		}
	})
	return h
}

func (h *hardened) socket() string { return filepath.Join(h.dir, "run", "control.sock") }

func (h *hardened) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// ready waits until the daemon answers, and is false if it ended instead.
func (h *hardened) ready() bool {
	h.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if h.reload() == nil {
			return true
		}
		select {
		case err := <-h.exited:
			h.exited <- err
			return false
		default:
		}
	}
	h.t.Fatalf("the daemon does not answer:\n%s", h.out)
	return false
}

func (h *hardened) reload() error {
	out, err := exec.Command(h.binary, "reload", "--socket", h.socket()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestServeGivesUpWhatItNeedsNot: after the start no thread of the daemon has
// a capability that serving does not need, or can gain one, and all have the
// filter.
func TestServeGivesUpWhatItNeedsNot(t *testing.T) {
	h := startHardened(t, buildRelease(t), "")
	if !h.ready() {
		t.Fatalf("the daemon ended:\n%s", h.out)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", h.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatal(len(threads), err)
	}
	// chown, dac_read_search, net_bind_service, net_admin, net_raw, ipc_lock,
	// sys_ptrace, sys_admin: see linux/capability.h.
	const allowed = 1<<0 | 1<<2 | 1<<10 | 1<<12 | 1<<13 | 1<<14 | 1<<19 | 1<<21
	field := regexp.MustCompile(`(?m)^(Cap\w+|NoNewPrivs|Seccomp):\s+(\w+)$`)
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, m := range field.FindAllStringSubmatch(string(b), -1) {
			switch m[1] {
			case "NoNewPrivs":
				if m[2] != "1" {
					t.Errorf("%s: no_new_privs is %s", path, m[2])
				}
			case "Seccomp":
				if m[2] != "2" {
					t.Errorf("%s: seccomp is %s", path, m[2])
				}
			case "CapBnd":
				if os.Geteuid() != 0 {
					continue // without CAP_SETPCAP nothing can be dropped, nor be gained
				}
				fallthrough
			default:
				set, err := strconv.ParseUint(m[2], 16, 64)
				if err != nil || set&^allowed != 0 {
					t.Errorf("%s: %s is %s", path, m[1], m[2])
				}
			}
		}
	}
}

// TestConfinedGatewayReadsItsFilesAlone: a confined daemon serves and reloads,
// and cannot read what lies elsewhere, though its user may.
func TestConfinedGatewayReadsItsFilesAlone(t *testing.T) {
	binary := buildRelease(t)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.hcl")
	if err := os.WriteFile(elsewhere, []byte("sandbox \"more\" {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, confine := range []bool{false, true} {
		h := startHardened(t, binary, fmt.Sprintf("confine = %v\n", confine))
		if !h.ready() {
			if confine && strings.Contains(h.out.String(), "Landlock") {
				return // the kernel has none: it refuses to start rather than to be open
			}
			t.Fatalf("the daemon ended:\n%s", h.out)
		}
		h.write("policy.d/q.hcl", "sandbox \"other\" {}\n")
		if err := h.reload(); err != nil {
			t.Errorf("confine = %v: a new file of the policy: %v", confine, err)
		}
		if err := os.Symlink(elsewhere, filepath.Join(h.dir, "policy.d", "r.hcl")); err != nil {
			t.Fatal(err)
		}
		err := h.reload()
		if confine && (err == nil || !strings.Contains(err.Error(), "permission denied")) {
			t.Errorf("confined, it reads a file elsewhere: %v", err)
		}
		if !confine && err != nil {
			t.Errorf("not confined: %v", err)
		}
	}
}

// TestConfineRefuses: what a confined gateway could not do is told at the start.
func TestConfineRefuses(t *testing.T) {
	binary := buildRelease(t)
	for name, more := range map[string]string{
		"a container engine": "confine = true\ncapture \"c\" { engine = \"docker\" }\n",
	} {
		h := startHardened(t, binary, more)
		select {
		case err := <-h.exited:
			h.exited <- err
			if h.cmd.ProcessState.ExitCode() != exitConfig || !strings.Contains(h.out.String(), "confine does not go with") {
				t.Errorf("%s: %v\n%s", name, err, h.out)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: it started", name)
		}
	}
}
