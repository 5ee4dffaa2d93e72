//go:build linux

// Package packaging holds that what is shipped beside the program is whole: the
// Debian package, the unit of systemd, manual pages and completions.
package packaging

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const examples = "../../examples"

var binary string // built once, static

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sppkg-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sallyport")
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, "sallyport/cmd/sallyport")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// run runs a command and fails the test where that fails.
func run(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// packaged builds the package and unpacks it.
func packaged(t testing.TB, version string) (deb, root string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("DPKG_DEB_COMPRESSOR_TYPE", "none")
	run(t, filepath.Join(examples, "debian/build.sh"), binary, version, dir)
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("packages: %q %v", debs, err)
	}
	root = filepath.Join(dir, "root")
	run(t, "dpkg-deb", "--extract", debs[0], root)
	return debs[0], root
}

func TestDebianPackage(t *testing.T) {
	deb, root := packaged(t, "v1.2.3-4-gabcdef0-dirty")
	for field, want := range map[string]string{"Package": "sallyport", "Version": "1.2.3+4+gabcdef0+dirty"} {
		if got := strings.TrimSpace(run(t, "dpkg-deb", "--field", deb, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	info := run(t, "dpkg", "--info", deb)
	for _, part := range []string{"conffiles", "md5sums", "postinst", "prerm", "postrm"} {
		if !strings.Contains(info, part) {
			t.Errorf("no %s in\n%s", part, info)
		}
	}
	contents := run(t, "dpkg-deb", "--contents", deb)
	for line := range strings.SplitSeq(strings.TrimSpace(contents), "\n") {
		if !strings.Contains(line, " root/root ") {
			t.Errorf("not root's: %s", line)
		}
	}
	for _, file := range []string{"usr/bin/sallyport", "lib/systemd/system/sallyport.service", "lib/systemd/system/sallyport-lock.service", "etc/sallyport/sallyport.hcl",
		"usr/share/doc/sallyport/README.md", "usr/share/man/man1/sallyport.1.gz", "usr/share/man/man1/sallyport-serve.1.gz", "usr/share/bash-completion/completions/sallyport"} {
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	run(t, "dpkg-deb", "--control", deb, filepath.Join(root, "DEBIAN"))
	check := exec.Command("md5sum", "--check", "--quiet", "DEBIAN/md5sums")
	check.Dir = root
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("md5sums: %v\n%s", err, out)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		run(t, "sh", "-n", filepath.Join(root, "DEBIAN", script))
	}
	if out := run(t, filepath.Join(root, "usr/bin/sallyport"), "version"); !strings.HasPrefix(out, "sallyport ") {
		t.Errorf("version: %s", out)
	}
}

// TestDebianPackageIsReproducible: the same binary is the same package.
func TestDebianPackageIsReproducible(t *testing.T) {
	a, _ := packaged(t, "v1.0.0")
	b, _ := packaged(t, "v1.0.0")
	one, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, other) {
		t.Error("two builds differ")
	}
}

// TestUnits: systemd finds nothing wrong with the units, and they are not
// exposed more than they were.
func TestUnits(t *testing.T) {
	_, root := packaged(t, "v1.0.0")
	for _, target := range []string{"basic.target", "sysinit.target", "shutdown.target", "network-online.target", "network-pre.target", "local-fs.target", "multi-user.target"} {
		if err := os.WriteFile(filepath.Join(root, "lib/systemd/system", target), []byte("[Unit]\nDescription=x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Tenths. What there is comes from CAP_SYS_ADMIN and CAP_NET_ADMIN.
	for unit, exposure := range map[string]string{"sallyport.service": "40", "sallyport-lock.service": "25"} {
		if out := run(t, "systemd-analyze", "verify", "--man=no", "--root="+root, unit); strings.TrimSpace(out) != "" {
			t.Errorf("systemd-analyze verify: %s", out)
		}
		run(t, "systemd-analyze", "security", "--offline=true", "--threshold="+exposure, "--no-pager", filepath.Join(examples, "systemd", unit))
	}
}

// TestManualPages: each page is rendered without a warning, and each command
// has one.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	run(t, binary, "docs", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "man1", "*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		if out := run(t, "groff", "-man", "-ww", "-Tutf8", "-z", page); out != "" {
			t.Errorf("%s: %s", page, out)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "man1", "sallyport-serve.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{".SH NAME", `\-\-config`, ".SH EXAMPLES", ".BR sallyport (1)"} {
		if !strings.Contains(string(b), part) {
			t.Errorf("sallyport-serve(1) has no %q", part)
		}
	}
}

// TestCompletions: a shell reads them, and they complete.
func TestCompletions(t *testing.T) {
	dir := t.TempDir()
	run(t, binary, "docs", dir)
	run(t, "bash", "-n", filepath.Join(dir, "completions", "bash"))
	for _, shell := range []string{"zsh", "fish"} {
		if b, err := os.ReadFile(filepath.Join(dir, "completions", shell)); err != nil || !strings.Contains(string(b), "sallyport") {
			t.Errorf("%s: %v", shell, err)
		}
	}
	if out := run(t, binary, "__complete", "sandbox", "at"); !strings.Contains(out, "attach") {
		t.Errorf("completes to %s", out)
	}
}

// TestInstall: make install brings the manual pages and completions with the
// program, below PREFIX alone.
func TestInstall(t *testing.T) {
	root := t.TempDir()
	run(t, "make", "-C", "../..", "install", "BIN="+binary, "DESTDIR="+root, "PREFIX=/opt/sp")
	for _, file := range []string{"bin/sallyport", "share/man/man1/sallyport.1", "share/man/man1/sallyport-run.1",
		"share/bash-completion/completions/sallyport", "share/zsh/site-functions/_sallyport", "share/fish/vendor_completions.d/sallyport.fish"} {
		if info, err := os.Stat(filepath.Join(root, "opt/sp", file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if list, err := os.ReadDir(root); err != nil || len(list) != 1 {
		t.Errorf("outside of PREFIX: %v %v", list, err)
	}
	if out := run(t, filepath.Join(root, "opt/sp/bin/sallyport"), "version"); !strings.HasPrefix(out, "sallyport ") {
		t.Errorf("version: %s", out)
	}
}

// TestNotifies: systemd is told that the daemon is ready, that it lives, and
// that it stops.
func TestNotifies(t *testing.T) {
	dir := t.TempDir()
	policy, config := filepath.Join(dir, "p.hcl"), filepath.Join(dir, "sallyport.hcl")
	control := filepath.Join(dir, "control.sock")
	for file, text := range map[string]string{
		policy: "sandbox \"ci\" {}\n",
		config: fmt.Sprintf("state = %q\npolicy = [%q]\ncontrol { socket = %q }\n", filepath.Join(dir, "state"), policy, control),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(binary, "serve", "--config", config)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it has ended, unless the test failed
	told := func(want string) {
		t.Helper()
		b := make([]byte, 4096)
		_ = l.SetReadDeadline(time.Now().Add(20 * time.Second))
		for {
			n, err := l.Read(b)
			if err != nil {
				t.Fatalf("not told %s: %v", want, err)
			}
			if strings.TrimSpace(string(b[:n])) == want {
				return
			}
		}
	}
	told("READY=1")
	for range 3 {
		told("WATCHDOG=1")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	told("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// allowedCalls are the system calls that a unit's filter allows.
func allowedCalls(t *testing.T, unit string) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(examples, "systemd", unit))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "\nSystemCallFilter=")
	if !found {
		t.Fatalf("%s has no SystemCallFilter", unit)
	}
	line, _, _ := strings.Cut(rest, "\n")
	allowed := map[string]bool{}
	for open := strings.Fields(line); len(open) > 0; open = open[1:] {
		name := open[0]
		if allowed[name] {
			continue
		}
		allowed[name] = true
		if !strings.HasPrefix(name, "@") {
			continue
		}
		for member := range strings.Lines(run(t, "systemd-analyze", "--no-pager", "syscall-filter", name)) {
			if member = strings.TrimSpace(member); member != name && !strings.HasPrefix(member, "#") && member != "" {
				open = append(open, member)
			}
		}
	}
	return allowed
}

// TestUnitAllowsWhatCapturesNeed: namespaces are made, bound and entered, and
// the daemon hardens itself. What is not allowed is an error and not the end.
func TestUnitAllowsWhatCapturesNeed(t *testing.T) {
	allowed := allowedCalls(t, "sallyport.service")
	for _, name := range []string{"mount", "umount2", "unshare", "setns", "clone3", "capset", "prctl", "seccomp", "landlock_restrict_self", "bind", "sendmsg", "mlockall"} {
		if !allowed[name] {
			t.Errorf("%s is not allowed", name)
		}
	}
	for _, name := range []string{"ptrace", "bpf", "init_module", "kexec_load", "reboot", "swapon", "open_by_handle_at"} {
		if allowed[name] {
			t.Errorf("%s is allowed", name)
		}
	}
	for _, unit := range []string{"sallyport.service", "sallyport-lock.service"} {
		if b, err := os.ReadFile(filepath.Join(examples, "systemd", unit)); err != nil || !strings.Contains(string(b), "\nSystemCallErrorNumber=EPERM\n") {
			t.Errorf("%s: a call that is not allowed ends the process (%v)", unit, err)
		}
	}
}
