//go:build linux

package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// TestRunAsOrdinaryUser runs every test of this file's kind as uid 65534 too.
func TestRunAsOrdinaryUser(t *testing.T) { asOrdinaryUser(t, "^(TestSandbox|TestHide|TestTerminal)") }

// playLaunch is a launcher of its own: it runs args in a sandbox with the
// standard files it has, passes signals on and says how it ended.
func playLaunch(args []string) error {
	c := Command{
		Argv: args, Dir: "/", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env: []string{"PATH=/usr/bin:/bin", "PS1=box> ", "TERM=dumb"},
	}
	s, err := Prepare(c)
	if err != nil {
		if e, ok := errors.AsType[*SetupError](err); ok {
			fmt.Println("hint:", e.Hint)
		}
		return err
	}
	defer s.Close()
	signals := CatchSignals()
	defer signals.Release()
	if err := s.Start(); err != nil {
		return err
	}
	stop := s.Forward(signals)
	defer stop()
	r, err := s.Wait()
	fmt.Printf("[ended code=%d signal=%d timeout=%t]\n", r.ExitCode, r.Signal, r.TimedOut)
	return err
}

func TestSandboxExitCodes(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   Result
	}{
		"zero":      {"exit 0", Result{}},
		"code":      {"exit 73", Result{ExitCode: 73}},
		"signalled": {"kill -KILL $$", Result{ExitCode: 137, Signal: syscall.SIGKILL}},
		"aborted":   {"kill -ABRT $$", Result{ExitCode: 134, Signal: syscall.SIGABRT}},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := inSandbox(t, sh(test.script))
			got.CPU, got.MaxRSS = 0, 0
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSandboxCommandThatCannotRun(t *testing.T) {
	dir := scratch(t)
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	noFormat := write("noformat", "echo hi\n", 0o755)
	below := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(below, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	lost := write("lost", "#!/nonexistent/interpreter\n", 0o755)
	for name, test := range map[string]struct {
		argv0, path string
		code        int
		text        string
	}{
		"not in PATH":            {"no-such-command", "/usr/bin:/bin", ExitNotFound, "no-such-command: command not found"},
		"no such file":           {"/no/such/file", "/usr/bin:/bin", ExitNotFound, "no such file"},
		"directory":              {"/usr", "", ExitNotExecutable, "permission denied"},
		"mode":                   {plain, "", ExitNotExecutable, "permission denied"},
		"mode in PATH":           {"plain", dir, ExitNotExecutable, "permission denied"},
		"no format":              {noFormat, "", ExitNotExecutable, "#! line"},
		"interpreter is missing": {lost, "", ExitNotFound, "no such file"},
		"below the private /tmp": {below, "", ExitNotFound, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := runSandbox(t, Command{Argv: []string{test.argv0}, Dir: "/", Env: []string{"PATH=" + test.path}})
			e, ok := errors.AsType[*ExecError](err)
			if !ok || e.Code != test.code || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want code %d and %q", err, test.code, test.text)
			}
		})
	}
}

func TestSandboxRefusesWrongCommand(t *testing.T) {
	for name, test := range map[string]struct {
		c    Command
		text string
	}{
		"empty":             {Command{}, "command is empty"},
		"NUL":               {Command{Argv: []string{"a\x00b"}}, "NUL byte"},
		"relative share":    {Command{Argv: []string{"true"}, Share: []string{"x"}}, `share "x": not an absolute path`},
		"relative hide":     {Command{Argv: []string{"true"}, Hide: []string{"x"}}, `hide "x": not an absolute path`},
		"file goes up":      {Command{Argv: []string{"true"}, Files: map[string][]byte{"../x": nil}}, "plain relative path"},
		"file of our own":   {Command{Argv: []string{"true"}, Files: map[string][]byte{".hosts": nil}}, "begins with a dot"},
		"no such directory": {Command{Argv: []string{"true"}, Dir: "/no/such"}, "working directory"},
		"negative timeout":  {Command{Argv: []string{"true"}, Timeout: -1}, "negative"},
		"share is missing":  {Command{Argv: []string{"true"}, Dir: "/", Share: []string{"/no/such"}}, "share /no/such"},
		"runtime directory": {Command{Argv: []string{"true"}, Dir: "/", Env: []string{"HOME=/home/u", "XDG_RUNTIME_DIR=/home"}}, "/home/u lies in it"},
		"share all of run":  {Command{Argv: []string{"true"}, Dir: "/", Share: []string{"/run"}}, "share /run"},
		"hide all":          {Command{Argv: []string{"true"}, Dir: "/", Hide: []string{"/"}}, "is needed"},
		"hide the cwd":      {Command{Argv: []string{"true"}, Dir: "/usr/lib", Hide: []string{"/usr"}}, "/usr/lib lies in it"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Prepare(test.c)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %q", err, test.text)
			}
		})
	}
}

func TestSandboxKeepsUserDirectoryAndEnvironment(t *testing.T) {
	t.Setenv("SALLYPORT_TEST_CALLER", "of the caller")
	dir := scratch(t)
	c := sh(`id -u; id -g; pwd; echo "$0 $1"; env | sort; umask`, "a b\xff")
	c.Dir = dir
	c.Env = []string{"PATH=/usr/bin:/bin", "KEY=$KEY", "BYTES=\xfe"}
	out, _ := inSandbox(t, c)
	lines := []string{
		strconv.Itoa(os.Geteuid()), strconv.Itoa(os.Getegid()), dir, "sh a b\xff",
		"BYTES=\xfe", "KEY=$KEY", "PATH=/usr/bin:/bin", "PWD=" + dir, "0022",
	}
	if diff := cmp.Diff(strings.Join(lines, "\n")+"\n", out); diff != "" {
		t.Error(diff)
	}
}

func TestSandboxDirectoryBelowTmpIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := sh("echo made > here; ls /tmp")
	c.Dir = dir
	out, _ := inSandbox(t, c)
	if got, err := os.ReadFile(filepath.Join(dir, "here")); err != nil || string(got) != "made\n" {
		t.Errorf("the command's file: %q, %v", got, err)
	}
	if strings.Count(out, "\n") != 1 {
		t.Errorf("of /tmp the command sees more than its directory:\n%s", out)
	}
}

func TestSandboxInheritsNoDescriptors(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	for _, f := range []*os.File{read, write} { // as a shell's "exec 9<file" leaves them
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_SETFD, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	// 10 is the shell's own copy of its standard input.
	out, _ := inSandbox(t, sh("for n in 3 4 5 6 7 8 9 11 12 13 14 15 16 17 18 19 20; do [ -e /proc/$$/fd/$n ] && echo $n; done"))
	if out != "" {
		t.Errorf("open in the command: %s", out)
	}
}

func TestSandboxSignalsReachTheCommand(t *testing.T) {
	for _, sig := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			script := fmt.Sprintf("trap 'echo caught; exit 9' %d; echo ready; while :; do sleep 0.02; done", sig)
			cmd, out := launcher(t, "/bin/sh", "-c", script)
			expect(t, out, "ready")
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			expect(t, out, "caught\n[ended code=9 signal=0 timeout=false]")
		})
	}
	t.Run("ignored stays ignored", func(t *testing.T) {
		cmd := exec.Command("/bin/sh", append([]string{"-c", `trap '' HUP; exec "$@"`, "sh"}, self("launch", "/bin/sh", "-c",
			"kill -HUP $$; echo alive")...)...)
		cmd.Args[4] = "/proc/self/fd/3" // the shell's own executable is another
		binary, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer binary.Close()
		cmd.ExtraFiles = []*os.File{binary}
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), "alive") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

func TestSandboxStopAndContinue(t *testing.T) {
	cmd, out := launcher(t, "/bin/sh", "-c", "i=0; while :; do echo tick; sleep 0.05; done")
	expect(t, out, "tick")
	if err := cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	out.reset()
	expect(t, out, "tick\ntick\ntick\n")
}

func TestSandboxTimeoutEndsEverything(t *testing.T) {
	t.Run("by SIGTERM", func(t *testing.T) {
		c := sh("trap 'echo asked; exit 4' TERM; sleep 1000 & while :; do sleep 0.01; done")
		c.Timeout = 2 * time.Second // by then it has set the trap
		out, r := inSandbox(t, c)
		if !r.TimedOut || r.ExitCode != 4 || !strings.Contains(out, "asked") {
			t.Errorf("%+v %q", r, out)
		}
	})
	t.Run("by SIGKILL", func(t *testing.T) {
		c := sh("trap '' TERM; setsid sleep 1000 & trap '' TERM; while :; do sleep 0.01; done")
		c.Timeout = time.Second
		start := time.Now()
		_, r := inSandbox(t, c)
		if took := time.Since(start); !r.TimedOut || r.Signal != syscall.SIGKILL || took < Grace || took > c.Timeout+2*Grace {
			t.Errorf("%+v after %v", r, took)
		}
	})
	t.Run("of a stopped command", func(t *testing.T) {
		c := sh("kill -STOP $$; echo continued")
		c.Timeout = 200 * time.Millisecond
		if _, r := inSandbox(t, c); !r.TimedOut || r.Signal != syscall.SIGTERM {
			t.Errorf("%+v", r)
		}
	})
}

func TestSandboxReapsOrphansAndLeavesNothing(t *testing.T) {
	marker := fmt.Sprintf("1000.%d", os.Getpid())
	out, r := inSandbox(t, sh(`
		sh -c 'sleep 0.01 & sleep 0.02 & exit 0'
		sleep 0.3
		states() { for p in /proc/[0-9]*; do read pid comm state rest < $p/stat && echo "$state"; done 2>/dev/null; }
		for i in $(seq 100); do case $(states) in *Z*) sleep 0.1;; *) break;; esac; done
		states
		setsid sleep `+marker+` & sh -c 'sleep `+marker+` &'; exit 5`))
	if r.ExitCode != 5 || strings.Contains(out, "Z") {
		t.Errorf("%+v, states:\n%s", r, out)
	}
	left, err := exec.Command("pgrep", "-f", "sleep "+marker).Output()
	if err == nil || len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	var usage syscall.Rusage
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, &usage); !errors.Is(err, syscall.ECHILD) && pid != 0 {
		t.Errorf("a zombie of the launcher: %d", pid)
	}
}

func TestSandboxUsage(t *testing.T) {
	_, r := inSandbox(t, sh(`i=0; (while [ $i -lt 200000 ]; do i=$((i+1)); done) & wait; head -c 80000000 /dev/zero | tail -c 79999999 >/dev/null`))
	if r.CPU < 50*time.Millisecond || r.CPU > time.Minute {
		t.Errorf("CPU %v", r.CPU)
	}
	if r.MaxRSS < 70<<20 || r.MaxRSS > 400<<20 {
		t.Errorf("max RSS %d", r.MaxRSS)
	}
}

// TestSandboxNET07DiesWithTheGateway kills the launcher: no process of the
// sandbox outlives it.
func TestSandboxNET07DiesWithTheGateway(t *testing.T) {
	marker := fmt.Sprintf("2000.%d", os.Getpid())
	cmd, out := launcher(t, "/bin/sh", "-c", "trap '' HUP INT TERM; setsid sleep "+marker+" & echo ready; wait")
	expect(t, out, "ready")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(expectTime); exec.Command("pgrep", "-f", "sleep "+marker).Run() == nil; time.Sleep(25 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sandbox outlives its gateway")
		}
	}
}

func TestSandboxNetworkEndsInTheSockets(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	// Two connections, IPv4 and IPv6, to whatever address and port.
	c := Command{Argv: self("attack", "dial", "192.0.2.33:8443", "[2001:db8::5]:22"), Dir: "/", Stdout: write, Timeout: time.Minute}
	s, err := Prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, l := range s.Sockets().TCP {
		go serveNames(l)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	got, err := io.ReadAll(read)
	if want := "192.0.2.33:8443\n[2001:db8::5]:22\n"; string(got) != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := s.Wait(); err != nil {
		t.Error(err)
	}
}

// serveNames tells every connection where it was going.
func serveNames(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(c, c.LocalAddr())
		c.Close()
	}
}

// TestSandboxLeavesNothingInTheLauncher counts goroutines and descriptors.
func TestSandboxLeavesNothingInTheLauncher(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	inSandbox(t, sh("true")) // what the runtime opens once is open
	running, open := goleak.IgnoreCurrent(), count()
	for range 3 {
		inSandbox(t, sh("true"))
		if _, _, err := runSandbox(t, sh("true")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := runSandbox(t, Command{Argv: []string{"no-such-command"}, Dir: "/"}); err == nil {
			t.Fatal("ran")
		}
		if _, err := Prepare(Command{Argv: []string{"true"}, Dir: "/", Hide: []string{"/"}}); err == nil {
			t.Fatal("prepared")
		}
	}
	goleak.VerifyNone(t, running)
	if now := count(); now > open {
		t.Errorf("%d descriptors, %d before", now, open)
	}
}

func TestSandboxCloseWithoutStart(t *testing.T) {
	s, err := Prepare(sh("echo never"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Start(); err == nil {
		t.Error("a closed sandbox starts")
	}
}

func BenchmarkRunTrue(b *testing.B) {
	ctx := context.Background()
	for b.Loop() {
		s, err := Prepare(Command{Argv: []string{"/bin/true"}, Dir: "/"})
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(s.Start(), ctx.Err()); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Wait(); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
