//go:build linux

package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/audit"
	"sallyport/test/lab"
)

const closed = "sandbox \"dev\" {}\n"

// TestRunPassesTheExitCodeThrough also holds what the records say of it.
func TestRunPassesTheExitCodeThrough(t *testing.T) {
	for user, uid := range users() {
		for _, c := range []struct {
			name   string
			argv   []string
			flags  []string
			code   int
			signal string
			timed  bool
		}{
			{name: "0", argv: []string{"true"}},
			{name: "37", argv: []string{"sh", "-c", "exit 37"}, code: 37},
			{name: "255", argv: []string{"sh", "-c", "exit 255"}, code: 255},
			{name: "not found", argv: []string{"/nowhere/to/be/found"}, code: 127},
			{name: "not a program", argv: []string{"/etc/hostname"}, code: 126},
			{name: "killed", argv: []string{"sh", "-c", "kill -9 $$"}, code: 128 + 9, signal: "killed"},
			{name: "aborted", argv: []string{"sh", "-c", "kill -ABRT $$"}, code: 128 + 6, signal: "aborted"},
			{name: "timeout", argv: []string{"sleep", "60"}, flags: []string{"--timeout", "300ms"}, code: 128 + 15, signal: "terminated", timed: true},
			{name: "timeout, deaf", argv: []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, flags: []string{"--timeout", "3s"}, code: 128 + 9, signal: "killed", timed: true},
		} {
			t.Run(user+"/"+c.name, func(t *testing.T) {
				l := begin(t)
				o := withKey(uid, closed, c.argv...)
				o.Flags = append(o.Flags, c.flags...)
				r := l.Run(t, o)
				if r.Code != c.code {
					t.Errorf("exit %d, want %d; stderr %q", r.Code, c.code, r.Stderr)
				}
				start, end := lifeOf(t, r)
				if diff := cmp.Diff(c.argv, start.Run.Argv); diff != "" || start.Run.Cwd != r.Dir() || start.Run.UID != uid {
					t.Errorf("start %+v\n%s", start.Run, diff)
				}
				if end.Run.UID != uid {
					t.Errorf("the command of uid %d ended as that of uid %d", uid, end.Run.UID)
				}
				if end.Run.Exit == nil || *end.Run.Exit != c.code || end.Run.Signal != c.signal || end.Run.TimedOut != c.timed {
					t.Errorf("end %+v", end.Run)
				}
				if end.Sandbox == nil || end.Sandbox.Name != "dev" || end.Sandbox.ID == "" || end.Sandbox.ID != start.Sandbox.ID {
					t.Errorf("end of %+v, start of %+v", end.Sandbox, start.Sandbox)
				}
			})
		}
	}
}

// lifeOf finds the records of the beginning and the end of a run's command.
func lifeOf(t *testing.T, r *lab.Run) (start, end *audit.Event) {
	t.Helper()
	for _, e := range r.Events(t) {
		switch {
		case e.Kind != audit.KindSandbox || e.Run == nil:
		case e.Message == "command started" && start == nil:
			start = e
		case e.Message == "command ended" && end == nil:
			end = e
		default:
			t.Errorf("one more event of the command's life: %q", e.Message)
		}
	}
	if start == nil || end == nil {
		t.Fatalf("start %v, end %v", start, end)
	}
	return start, end
}

// TestRunRecordsResources: processor time and memory of the command.
func TestRunRecordsResources(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			r := l.Run(t, withKey(uid, closed, "/usr/bin/python3", "-c", "b=bytearray(64<<20)\nn=0\nwhile n<3000000: n+=1"))
			_, end := lifeOf(t, r)
			if end.Run.CPUMS < 50 || end.Run.MaxRSS < 64<<20 || end.Run.MaxRSS > 1<<30 {
				t.Errorf("%d ms of processor time and %d bytes are recorded", end.Run.CPUMS, end.Run.MaxRSS)
			}
		})
	}
}

// TestRunForwardsSignals: what is sent to sallyport reaches the command.
func TestRunForwardsSignals(t *testing.T) {
	for user, uid := range users() {
		for name, s := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "QUIT": syscall.SIGQUIT} {
			t.Run(user+"/"+name, func(t *testing.T) {
				l := begin(t)
				b := l.Begin(t, withKey(uid, closed, "sh", "-c", "trap 'echo got "+name+"; exit 5' "+name+"; touch ready; while :; do sleep 0.05; done"))
				if !lab.Within(lab.StartTime, func() bool { _, err := os.Stat(filepath.Join(b.Dir(), "ready")); return err == nil }) {
					t.Fatal("the command did not start")
				}
				must(t, b.Kill(s))
				if r := b.Wait(t); r.Code != 5 || r.Stdout != "got "+name+"\n" {
					t.Errorf("exit %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
				}
			})
		}
	}
}

// TestRunLeavesNothing: what the command started ends with it, and the folder
// of the caller holds what it wrote.
func TestRunLeavesNothing(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			marker := l.Unique("4711")
			r := l.Run(t, withKey(uid, closed, "sh", "-c", "sleep 3"+marker+" & nohup setsid sleep 3"+marker+" >/dev/null 2>&1 & echo kept >file; sleep 0.2"))
			if r.Code != 0 {
				t.Fatalf("exit %d: %s", r.Code, r.Stderr)
			}
			if b, err := os.ReadFile(filepath.Join(r.Dir(), "file")); string(b) != "kept\n" {
				t.Errorf("the file has %q (%v)", b, err)
			}
			left := regexp.MustCompile(`\b3` + marker + `\b`) // another's marker may begin with this one
			for pid, line := range processes(t) {
				if left.MatchString(line) && !strings.Contains(line, "sallyport") {
					t.Errorf("process %d is left: %q", pid, line)
				}
			}
		})
	}
}

// processes are the command lines of every process of the machine.
func processes(t *testing.T) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	must(t, err)
	out := map[int]string{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			b, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have gone
			out[pid] = string(b)
		}
	}
	return out
}

// TestRunEnvironment: placeholders for secrets, trust for clients, no proxy,
// and what --env says.
func TestRunEnvironment(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			o := withKey(uid, keyed("env.test")+"secret \"SHORT\" {\n  hosts = [\"a.env.test\"]\n  source \"env\" { name = \"SHORT_KEY\" }\n}\n", "env")
			o.Flags = append(o.Flags, "--env", "ADDED=yes", "--env", "GONE")
			o.Env = append(o.Env, "GONE=x", "HTTPS_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1", "KEPT=k", "COPY=Bearer "+value, "SHORT_KEY=bin", "BINARY=a binary")
			r := l.Run(t, o)
			got := map[string]string{}
			for line := range strings.Lines(r.Stdout) {
				name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
				got[name] = text
			}
			for name, want := range map[string]string{"API_KEY": "$API_KEY", "ADDED": "yes", "KEPT": "k", "BINARY": "a binary", "SALLYPORT_SANDBOX": "dev"} {
				if got[name] != want {
					t.Errorf("%s is %q, not %q", name, got[name], want)
				}
			}
			for _, name := range []string{"GONE", "HTTPS_PROXY", "http_proxy", "REAL_KEY", "COPY", "SHORT_KEY"} {
				if text, ok := got[name]; ok {
					t.Errorf("%s is %q", name, text)
				}
			}
			for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "npm_config_cafile", "DENO_CERT"} {
				if !strings.HasPrefix(got[name], "/run/sallyport/") {
					t.Errorf("%s is %q", name, got[name])
				}
			}
		})
	}
}
