//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// playHost changes a host of its own, which is a user and mount namespace in
// which it is root, and runs a sandbox there.
func playHost(args []string) error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	switch args[0] {
	case "no user namespaces":
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			return err
		}
	case "no network namespaces":
		if err := os.WriteFile("/proc/sys/user/max_net_namespaces", []byte("0"), 0); err != nil {
			return err
		}
	case "covered proc":
		if err := unix.Mount("tmpfs", "/proc/sys", "tmpfs", 0, ""); err != nil {
			return err
		}
	case "mounted twice":
		return playMountedTwice(args[1], args[2])
	}
	return playLaunch([]string{"/bin/echo", "ran"})
}

// playMountedTwice attacks a secret and a socket below a directory that can be
// found at another path too.
func playMountedTwice(dir, other string) error {
	if err := unix.Mount(dir, other, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	var argv []string
	for _, d := range []string{dir, other} {
		argv = append(argv, d+"/secret", d+"/seen")
	}
	s, err := Prepare(Command{
		Argv: append([]string{"/bin/grep", "-H", "."}, argv...), Dir: "/", Stdout: os.Stdout, Stderr: os.Stdout,
		Hide: []string{dir + "/secret"},
	})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Start(); err != nil {
		return err
	}
	_, err = s.Wait()
	return err
}

// onHost runs playHost and returns what it says.
func onHost(t *testing.T, args ...string) string {
	t.Helper()
	argv := self("host", args...)
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil { // see startTraceable
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

func TestSandboxWhereItIsForbidden(t *testing.T) {
	for name, want := range map[string][]string{
		"nothing":               {"ran\n[ended code=0"},
		"no user namespaces":    {"make namespaces: ", "no space left on device", "sudo sysctl -w user.max_user_namespaces=15000"},
		"no network namespaces": {"make namespaces: ", "no space left on device", "sudo sysctl -w user.max_net_namespaces=15000"},
		"covered proc":          {"mount a fresh /proc: operation not permitted", "systempaths=unconfined"},
	} {
		t.Run(name, func(t *testing.T) {
			out := onHost(t, name)
			for _, text := range want {
				if !strings.Contains(out, text) {
					t.Errorf("%q is missing in:\n%s", text, out)
				}
			}
			if name != "nothing" && strings.Contains(out, "ran") {
				t.Errorf("it ran all the same:\n%s", out)
			}
		})
	}
}

// TestHideUnderEveryMount hides a file that can be found at two paths.
func TestHideUnderEveryMount(t *testing.T) {
	dir, other := scratch(t), scratch(t)
	secretFile(t, dir, "secret")
	if err := os.WriteFile(filepath.Join(dir, "seen"), []byte("seen"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := onHost(t, "mounted twice", dir, other)
	if want := fmt.Sprintf("%s/seen:seen\n%s/seen:seen\n", dir, other); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestNamespaceHints(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		sysctl map[string]string
		want   string
	}{
		"Debian's switch":   {syscall.EPERM, map[string]string{"kernel/unprivileged_userns_clone": "0"}, "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		"limit is 0":        {syscall.ENOSPC, map[string]string{"user/max_pid_namespaces": "0"}, "sudo sysctl -w user.max_pid_namespaces=15000"},
		"limit is reached":  {syscall.ENOSPC, map[string]string{"user/max_user_namespaces": "5"}, "limit of namespaces is reached"},
		"AppArmor":          {syscall.EACCES, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		"AppArmor, profile": {syscall.EACCES, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "flags=(unconfined) { userns, }"},
		"container":         {syscall.EPERM, nil, "--security-opt seccomp=unconfined"},
		"kernel":            {syscall.EINVAL, nil, "CONFIG_USER_NS"},
		"something else":    {errors.New("other"), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := namespaceHint(test.err, func(name string) string { return test.sysctl[name] })
			if !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
