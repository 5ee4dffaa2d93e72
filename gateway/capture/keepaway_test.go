//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const testSecret = "real-secret-6f1e"

// attacked runs an attack in a sandbox and fails if it got hold of anything.
func attacked(t *testing.T, c Command, args ...string) string {
	t.Helper()
	c.Argv = self("attack", args...)
	if c.Dir == "" {
		c.Dir = "/"
	}
	out, r := inSandbox(t, c)
	if strings.Contains(out, "LEAK") || r.ExitCode != 0 {
		t.Errorf("attack %v: code %d\n%s", args, r.ExitCode, out)
	}
	return out
}

// outside runs the same attack outside any sandbox, where it must succeed: it
// shows that the attack can.
func outside(t *testing.T, args ...string) string {
	t.Helper()
	argv := self("attack", args...)
	out, err := (&exec.Cmd{Path: argv[0], Args: argv, Dir: "/"}).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "LEAK") {
		t.Errorf("outside a sandbox the attack %v gets nothing: %v\n%s", args, err, out)
	}
	return string(out)
}

func secretFile(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSandboxHasNoPrivilege(t *testing.T) {
	if out := attacked(t, Command{}, "privilege"); !strings.Contains(out, "privilege shown") {
		t.Error(out)
	}
}

func TestSandboxWaysOutAreClosed(t *testing.T) {
	if out := attacked(t, Command{}, "calls"); !strings.Contains(out, "calls made") {
		t.Error(out)
	}
}

// TestSandboxSeesNoGateway searches /proc for the secret in this process's
// environment and memory, and attacks the sandbox's first process.
func TestSandboxSeesNoGateway(t *testing.T) {
	t.Setenv("SALLYPORT_TEST_SECRET", testSecret)
	if out := attacked(t, Command{}, "search", testSecret); !strings.Contains(out, "searched") {
		t.Error(out)
	}
	out, _ := inSandbox(t, sh("echo $$; ls -d /proc/[0-9]* | wc -l; [ -d /proc/"+strconv.Itoa(os.Getpid())+" ] && echo LEAK"))
	var pid, count int
	if n, err := fmt.Sscan(out, &pid, &count); n != 2 || err != nil || pid > 50 || count > 4 || strings.Contains(out, "LEAK") {
		t.Errorf("/proc shows more than the sandbox:\n%s", out)
	}
	out = attacked(t, Command{}, "process", "1")
	for _, want := range []string{"refused read mem", "refused follow fd/3", "refused follow root", "refused attach", "refused process_vm_readv"} {
		if !strings.Contains(out, want) {
			t.Errorf("not tried: %q\n%s", want, out)
		}
	}
}

// TestSandboxHideProcess attacks a hidden process of the same user from outside
// any sandbox.
func TestSandboxHideProcess(t *testing.T) {
	user := &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: os.Geteuid() != 0}
	run := func(mode string) string {
		argv := self("victim", mode)
		victim := &exec.Cmd{Path: argv[0], Args: argv, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Credential: user}}
		out, err := victim.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
		if _, err := out.Read(make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		argv = self("attack", "process", strconv.Itoa(victim.Process.Pid))
		attacker := &exec.Cmd{Path: argv[0], Args: argv, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Credential: user}}
		text, err := attacker.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return string(text)
	}
	for _, what := range []string{"read environ", "read mem", "follow fd/0", "follow root", "attach", "process_vm_readv", "pidfd_getfd"} {
		if open := run("open"); !strings.Contains(open, "LEAK "+what) {
			t.Errorf("the attack on an open process fails: %s\n%s", what, open)
		}
		if hidden := run("hidden"); strings.Contains(hidden, "LEAK") || !strings.Contains(hidden, "refused "+what) {
			t.Errorf("%s on a hidden process:\n%s", what, hidden)
		}
	}
}

// playVictim waits to be attacked.
func playVictim(args []string) error {
	if args[0] == "hidden" {
		if err := HideProcess(); err != nil {
			return err
		}
	} else if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err // a change of user id had taken it away
	}
	fmt.Println("ready")
	time.Sleep(time.Minute)
	return nil
}

func TestSandboxLauncherIsHiddenAfterPrepare(t *testing.T) {
	for range 2 { // the second starts from a hidden process
		inSandbox(t, sh("true"))
		if got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || got != 0 {
			t.Errorf("dumpable %d, %v", got, err)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Cur != 0 {
		t.Errorf("limit of core files %+v, %v", limit, err)
	}
}

func TestHidePaths(t *testing.T) {
	dir := scratch(t)
	plain := secretFile(t, dir, "plain")
	inDir := secretFile(t, dir, "state/audit/ca.key")
	target := secretFile(t, dir, "far/away/target")
	linked := filepath.Join(dir, "linked")
	linkedDir := filepath.Join(dir, "linkeddir")
	for link, to := range map[string]string{linked: "far/away/target", linkedDir: dir + "/far"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	neighbour := filepath.Join(dir, "neighbour")
	if err := os.WriteFile(neighbour, []byte("for everybody"), 0o644); err != nil {
		t.Fatal(err)
	}
	below := secretFile(t, t.TempDir(), "below-tmp")
	all := []string{plain, inDir, target, linked, filepath.Join(linkedDir, "away/target")}
	c := Command{Hide: []string{plain, filepath.Join(dir, "state"), linked, below, filepath.Join(dir, "state/none/yet")}}
	attacked(t, c, append([]string{"read", below}, all...)...)
	for _, p := range append(all, below) {
		if got, err := os.ReadFile(p); err != nil || string(got) != testSecret {
			t.Errorf("%s outside: %q, %v", p, got, err)
		}
	}
	open := sh("cat " + neighbour)
	open.Hide = c.Hide
	if out, _ := inSandbox(t, open); out != "for everybody" {
		t.Errorf("a file beside hidden ones: %q", out)
	}
	control := secretFile(t, dir, "control")
	outside(t, "read", control)
}

// TestHideAFolderAlone hides a folder that is the only thing in another, as a
// state folder may be: what is around it stays the caller's.
func TestHideAFolderAlone(t *testing.T) {
	dir := scratch(t)
	secretFile(t, dir, "around/state/ca.key")
	openUp(t, filepath.Join(dir, "around"))
	c := sh("cd " + filepath.Join(dir, "around") + " && mkdir beside && echo made && cat state/ca.key 2>&1")
	c.Hide = []string{filepath.Join(dir, "around", "state")}
	out, _ := inSandbox(t, c)
	if !strings.Contains(out, "made") || strings.Contains(out, testSecret) {
		t.Errorf("got %q", out)
	}
}

// TestHideBelowShare hides a file of a directory that is given back.
func TestHideBelowShare(t *testing.T) {
	dir := t.TempDir()
	openUp(t, dir)
	secret := secretFile(t, dir, "secret")
	if err := os.WriteFile(filepath.Join(dir, "shared"), []byte("shared"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := sh("cat " + dir + "/*")
	c.Share, c.Hide = []string{dir}, []string{secret}
	if out, _ := inSandbox(t, c); out != "shared" {
		t.Errorf("got %q", out)
	}
}

// TestShareOfAWholePrivateDirectory: what would not come back is said to.
func TestShareOfAWholePrivateDirectory(t *testing.T) {
	for _, path := range []string{"/tmp", "/dev", "/run", "/tmp/."} {
		c := sh("true")
		c.Share = []string{path}
		if _, _, err := runSandbox(t, c); err == nil || !strings.Contains(err.Error(), "files of its own") {
			t.Errorf("share %s: %v", path, err)
		}
	}
}

func TestHideRefusesHardLinks(t *testing.T) {
	dir := scratch(t)
	secret := secretFile(t, dir, "secret")
	if err := os.Link(secret, filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	c := sh("true")
	c.Hide = []string{secret}
	_, _, err := runSandbox(t, c)
	if err == nil || !strings.Contains(err.Error(), "2 names") {
		t.Errorf("got %v", err)
	}
}

// TestHideSurvivesANamespaceBelow unmounts what hides, as root of a user
// namespace that the command makes.
func TestHideSurvivesANamespaceBelow(t *testing.T) {
	dir := scratch(t)
	secret := secretFile(t, dir, "secret")
	alone := secretFile(t, dir, "alone/secret")
	for _, path := range []string{secret, alone} {
		out := attacked(t, Command{Hide: []string{secret, alone}}, "unmask", path)
		if !strings.Contains(out, "unmasking tried") || path == secret && !strings.Contains(out, "refused unmount: invalid argument") {
			t.Error(out)
		}
	}
}

// TestHideAgain replaces a hidden file while the command reads it all the time,
// as an editor or a rotation does. The directory holds nothing else, so not
// even a moment is lost.
func TestHideAgain(t *testing.T) {
	dir := scratch(t)
	secret := secretFile(t, dir, "secrets/token")
	later := filepath.Join(dir, "not/yet/there")
	out := whileReading(t, Command{Hide: []string{secret, later}}, []string{secret}, func() {
		for i := range 20 {
			next := secretFile(t, dir, "next")
			if err := os.Rename(next, secret); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
	})
	if strings.Contains(out, "LEAK") {
		t.Error(out)
	}
}

// TestHideAgainSoon replaces hidden files among others, and makes one that was
// not there: within a moment they are hidden again.
func TestHideAgainSoon(t *testing.T) {
	dir := scratch(t)
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	secret := secretFile(t, dir, "token")
	current := filepath.Join(dir, "current")
	secretFile(t, dir, "v1/token")
	if err := os.Symlink("v1", current); err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(dir, "not/yet/there")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	c := sh(`echo up; read go
		for i in $(seq 300); do cat "$@" 2>/dev/null | grep -q . || break; sleep 0.1; done
		cat "$@" 2>/dev/null; echo done`, secret, later, current+"/token")
	c.Hide, c.Stdin = []string{secret, later, current + "/token"}, read
	out := withSandbox(t, c, "up\n", func() {
		for range 3 {
			replaceSecrets(t, dir, secret, later, current)
			time.Sleep(100 * time.Millisecond)
		}
		fmt.Fprintln(write, "go")
	})
	if out != "up\ndone\n" {
		t.Errorf("seen: %q", out)
	}
}

func replaceSecrets(t *testing.T, dir, secret, later, current string) {
	t.Helper()
	secretFile(t, dir, "v2/token")
	secretFile(t, filepath.Dir(later), filepath.Base(later))
	link := current + ".next"
	if err := os.Symlink("v2", link); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{secretFile(t, dir, "next"): secret, link: current} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
}

// whileReading runs f while the command reads paths over and over.
func whileReading(t *testing.T, c Command, paths []string, f func()) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Argv, c.Dir, c.Stdin = self("attack", append([]string{"replaced"}, paths...)...), "/", read
	return withSandbox(t, c, "reading\n", func() {
		f()
		write.Close()
	})
}

// TestHideSockets listens in every place that a same-user daemon may and
// connects from inside.
func TestHideSockets(t *testing.T) {
	home, tmp := scratch(t), t.TempDir()
	openUp(t, tmp)
	listenUnix := func(kind, name string) string {
		var err error
		switch kind {
		case "unix":
			var l *net.UnixListener
			if l, err = net.ListenUnix(kind, &net.UnixAddr{Name: name, Net: kind}); err == nil {
				l.SetUnlinkOnClose(false)
				t.Cleanup(func() { l.Close() })
			}
		default:
			var c *net.UnixConn
			if c, err = net.ListenUnixgram(kind, &net.UnixAddr{Name: name, Net: kind}); err == nil {
				t.Cleanup(func() { c.Close() })
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	lock, err := os.MkdirTemp("/run/lock", "sallyport-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(lock) })
	paths := []string{
		listenUnix("unix", home+"/agent"), listenUnix("unix", tmp+"/docker.sock"), listenUnix("unix", lock+"/bus"),
		listenUnix("unixgram", home+"/log"), listenUnix("unix", home+"/with space \n and more"),
		listenUnix("unix", fmt.Sprintf("@sallyport-test-%d", os.Getpid())),
	}
	moved := listenUnix("unix", home+"/mux.tmp")
	if err := os.Rename(moved, home+"/mux"); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(home, "relative")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(sub)
	listenUnix("unix", "here")
	paths = append(paths, home+"/mux", sub+"/here")
	shared := listenUnix("unix", home+"/shared")
	for _, p := range append(paths, shared) {
		outside(t, "connect", p)
	}
	attacked(t, Command{}, append([]string{"connect", shared}, paths...)...)
	attacked(t, Command{Share: []string{tmp, home, lock}}, append([]string{"connect", shared}, paths...)...)
	t.Run("given back by its own path", func(t *testing.T) {
		out, _ := inSandbox(t, Command{Argv: self("attack", "connect", shared, home+"/agent"), Dir: "/", Share: []string{shared}})
		if strings.Count(out, "LEAK") != 1 || !strings.Contains(out, "LEAK connect 1 "+shared) {
			t.Errorf("got:\n%s", out)
		}
	})
	t.Run("a daemon that starts again", func(t *testing.T) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := Command{Argv: self("attack", "connect-later", home+"/agent"), Stdin: read, Dir: "/"}
		out := withSandbox(t, c, "waiting\n", func() {
			if err := os.Remove(home + "/agent"); err != nil {
				t.Error(err)
			}
			listenUnix("unix", home+"/agent")
			write.Close()
		})
		if strings.Contains(out, "LEAK") || !strings.Contains(out, "refused connect 1") {
			t.Errorf("got:\n%s", out)
		}
	})
}

// openUp lets a process without capabilities pass to dir, whose parents a test
// made for its own user only: up to the one that is everybody's.
func openUp(t *testing.T, dir string) {
	t.Helper()
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err == nil && info.Mode()&os.ModeSticky == 0 {
			err = os.Chmod(d, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&os.ModeSticky != 0 || d == "/" {
			return
		}
	}
}

func TestHidePrivateDirectories(t *testing.T) {
	own := filepath.Join(scratch(t), "runtime")
	for _, dir := range []string{own, t.TempDir(), "/dev/shm"} {
		file := filepath.Join(dir, fmt.Sprintf("sallyport-test-%d", os.Getpid()))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(testSecret), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(file) })
		c := sh(`cat "$1"; touch "$2/made" && echo made; stat -c %a "$2"`, file, filepath.Dir(file))
		if dir != own {
			c = sh(`cat "$1"; echo made`, file)
		}
		c.Env = append(c.Env, "XDG_RUNTIME_DIR="+own)
		out, _ := inSandbox(t, c)
		if strings.Contains(out, testSecret) || !strings.Contains(out, "made") {
			t.Errorf("%s: %q", dir, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
			t.Errorf("%s is not the sandbox's own", dir)
		}
	}
	c := sh("stat -c '%a %u' /run/user/4711 /tmp /dev/shm; ls -A /run/user/4711 /tmp /dev/shm")
	c.Env = append(c.Env, "XDG_RUNTIME_DIR=/run/user/4711")
	want := fmt.Sprintf("700 %[1]d\n1777 %[1]d\n1777 %[1]d\n/dev/shm:\n\n/run/user/4711:\n\n/tmp:\n", os.Geteuid())
	if out, _ := inSandbox(t, c); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestSandboxFiles(t *testing.T) {
	c := sh(`cat /run/sallyport/trust/ca.pem; cat /etc/resolv.conf; grep -c . /etc/hosts; getent hosts localhost | head -c 3
		echo x > /run/sallyport/trust/ca.pem; echo x > /etc/hosts; rm /run/sallyport/trust/ca.pem; echo x > /etc/resolv.conf`)
	c.Files = map[string][]byte{"trust/ca.pem": []byte("pem\n")}
	c.ResolvConf = "nameserver 192.0.2.53\n"
	out, _ := inSandbox(t, c)
	if !strings.HasPrefix(out, "pem\nnameserver 192.0.2.53\n2\n::1") || strings.Count(out, "ead-only")+strings.Count(out, "ermission denied") != 4 {
		t.Errorf("got:\n%s", out)
	}
}

// TestTLS16FilesOfTheHostAreReplaced: a file of the host has another content
// inside, also behind a link, and cannot be written; what is no file stays.
func TestTLS16FilesOfTheHostAreReplaced(t *testing.T) {
	dir := t.TempDir() // below a directory that the sandbox has of its own
	if within(dir, "/tmp") {
		var err error
		if dir, err = os.MkdirTemp("/var/tmp", "over"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(dir+"/roots", []byte("host\n"), 0o644), os.Symlink("roots", dir+"/link"), os.Mkdir(dir+"/dir", 0o755)); err != nil {
		t.Fatal(err)
	}
	c := sh("cat " + dir + "/roots " + dir + "/link; echo x > " + dir + "/roots; ls -d " + dir + "/none " + dir + "/dir")
	c.Files = map[string][]byte{"bundle.pem": []byte("ours\n")}
	c.Over = map[string]string{dir + "/link": "bundle.pem", dir + "/none": "bundle.pem", dir + "/dir": "bundle.pem"}
	out, _ := inSandbox(t, c)
	if !strings.HasPrefix(out, "ours\nours\n") || !strings.Contains(out, "ead-only") && !strings.Contains(out, "ermission denied") || !strings.Contains(out, "\n"+dir+"/dir\n") {
		t.Errorf("got:\n%s", out)
	}
	if b, err := os.ReadFile(dir + "/roots"); err != nil || string(b) != "host\n" {
		t.Errorf("the host has %q, %v", b, err)
	}
}

// TestTLS16DirectoriesOfItsOwn: the command finds and writes what is in a
// directory of its own; the host's keeps what it had, one that is missing is
// made empty, and none is made where the caller owns nothing.
func TestTLS16DirectoriesOfItsOwn(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "own")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Mkdir(dir+"/there", 0o755), os.WriteFile(dir+"/there/host", nil, 0o644), os.Symlink("there", dir+"/link"),
		os.WriteFile(dir+"/file", []byte("host\n"), 0o644), os.Mkdir(dir+"/other", 0o755), os.Chown(dir+"/other", 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	c := sh("cd " + dir + " && cat new/a/db link/db && ls there && echo x >new/a/db && echo y >there/y && cat file && ls other")
	c.Files = map[string][]byte{"folder/db": []byte("ours\n"), "folder/below/more": nil}
	c.Own = map[string]string{dir + "/new/a": "folder", dir + "/link": "folder", dir + "/file": "folder", dir + "/other/new": "folder"}
	if out, _ := inSandbox(t, c); out != "ours\nours\ndb\nhost\n" {
		t.Errorf("got:\n%s", out)
	}
	for path, want := range map[string]string{"new/a": "", "there": "host", "other": ""} {
		entries, err := os.ReadDir(filepath.Join(dir, path))
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s on the host has %q, %v", path, got, err)
		}
	}
	if b, err := os.ReadFile(dir + "/file"); err != nil || string(b) != "host\n" {
		t.Errorf("the host's file has %q, %v", b, err)
	}
}

func TestSandboxSystemFilesAreReadOnly(t *testing.T) {
	out, _ := inSandbox(t, sh(`
		for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/net/ipv4/ip_forward /sys/kernel/uevent_seqnum /sys/fs/cgroup/memory/cgroup.procs; do
			[ -e $f ] || continue; (printf '' >> $f) 2>/dev/null && echo "LEAK $f"
		done; ls /dev/vda /dev/vsock /dev/kmsg /dev/kvm 2>/dev/null; echo -1000 > /proc/self/oom_score_adj; echo done`))
	if strings.Contains(out, "LEAK") || strings.Contains(out, "/dev/") || !strings.Contains(out, "done") {
		t.Errorf("got:\n%s", out)
	}
}

// TestSandboxIPC: System V and POSIX queues and segments of the host are not
// there.
func TestSandboxIPC(t *testing.T) {
	key := 0x5a000000 | os.Getpid()&0xffffff // nobody else's, nor left behind
	name := fmt.Sprintf("0x%08x", key)
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	outer, err := exec.Command("ipcs", "-m").Output()
	if err != nil || !strings.Contains(string(outer), name) {
		t.Fatalf("outside: %v %s", err, outer)
	}
	if out, _ := inSandbox(t, sh("ipcs -m")); strings.Contains(out, name) || !strings.Contains(out, "shmid") {
		t.Errorf("inside:\n%s", out)
	}
}

// TestHideBelowDeniedDirectory: its owner may change the mode of a directory
// that cannot be looked into.
func TestHideBelowDeniedDirectory(t *testing.T) {
	dir := scratch(t)
	secret := secretFile(t, dir, "closed/deep/secret")
	closed := filepath.Join(dir, "closed")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(closed, 0o700) })
	c := sh(`chmod 700 "$2"; cat "$1"; echo done`, secret, closed)
	c.Hide = []string{secret}
	if out, _ := inSandbox(t, c); strings.Contains(out, testSecret) || !strings.Contains(out, "done") {
		t.Errorf("got %q", out)
	}
}

func TestSandboxHasNoKeysOfTheCaller(t *testing.T) {
	runtime.LockOSThread() // keyrings are a thread's; what it executes inherits them
	defer runtime.UnlockOSThread()
	if _, err := unix.KeyctlJoinSessionKeyring("sallyport-test"); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("sallyport-test-%d", os.Getpid())
	if _, err := unix.AddKey("user", name, []byte(testSecret), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
		t.Fatal(err)
	}
	outside(t, "keys", name)
	argv := self("launch", self("attack", "keys", name)...)
	out, err := (&exec.Cmd{Path: argv[0], Args: argv, Dir: "/"}).CombinedOutput()
	if err != nil || strings.Contains(string(out), "LEAK") || !strings.Contains(string(out), "refused find key") {
		t.Errorf("%v\n%s", err, out)
	}
}
