package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// asUser calls f on a thread that has only the rights of an ordinary user,
// which is another than the one of the test if that is root.
func asUser(t *testing.T, f func(r reach)) {
	t.Helper()
	const nobody = 65534
	if os.Getuid() != 0 {
		f(reach{uint32(os.Getuid())})
		return
	}
	var err error
	onOwnThread(func() {
		err = errors.Join(raw(syscall.SYS_SETGROUPS, 0, 0, 0), raw(syscall.SYS_SETRESGID, nobody, nobody, nobody), raw(syscall.SYS_SETRESUID, nobody, nobody, nobody))
		if err == nil {
			f(reach{nobody})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// raw changes the calling thread alone; package syscall changes them all.
func raw(trap, a, b, c uintptr) error {
	if _, _, errno := syscall.RawSyscall(trap, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// TestReach: what the command of a run can change, through any folder and link
// on the way.
func TestReach(t *testing.T) {
	dir := t.TempDir() // of the user who runs the test
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"closed", "open", "sticky", "theirs"} {
		if err := os.Mkdir(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"closed/plain", "closed/loose", "closed/own", "open/file", "sticky/file", "sticky/own", "theirs/file"} {
		if err := os.WriteFile(at(f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Chmod(at("closed/loose"), 0o666), os.Chmod(at("open"), 0o777), os.Chmod(at("sticky"), fs.ModeSticky|0o777),
		os.Symlink("../open/file", at("closed/to-open")), os.Symlink("plain", at("closed/to-plain")), os.Symlink(at("closed"), at("sticky/to-closed")),
		os.Symlink(at("closed/to-there"), at("closed/to-there")), os.Symlink("/etc/hostname", at("closed/abroad")))
	if os.Getuid() == 0 {
		err = errors.Join(err, os.Chown(at("closed/own"), 65534, 65534), os.Chown(at("sticky/own"), 65534, 65534), os.Chown(at("theirs"), 65534, 65534))
	}
	if err != nil {
		t.Fatal(err)
	}
	ours := os.Getuid() != 0 // then every file of the test is the command's
	asUser(t, func(r reach) {
		for path, want := range map[string]bool{
			"/etc/hostname":                    false,
			"/etc/not-here":                    false,
			"/tmp/not-here-for-sallyport":      true,
			at("closed/plain"):                 ours,
			at("closed/to-plain"):              ours,
			at("closed/missing"):               ours,
			at("closed/../closed/plain"):       ours,
			at("closed"):                       ours,
			at("sticky/file"):                  ours,
			at("sticky/to-closed/plain"):       ours,
			at("closed/abroad"):                ours,
			at("closed/loose"):                 true,
			at("closed/own"):                   true,
			at("open/file"):                    true,
			at("open"):                         true,
			at("open/../closed/plain"):         ours, // Abs takes the folder out
			at("closed/to-open"):               true,
			at("sticky/own"):                   true,
			at("sticky/missing"):               true,
			at("theirs/file"):                  true,
			at("theirs/missing/and/more"):      true,
			at("closed/to-there"):              true, // a link to itself
			at("closed/to-open/below-a-file"):  true,
			"/proc/self/fd/0/not-a-folder/cfg": true,
		} {
			if got := r.changes(path); got != want {
				t.Errorf("%s: changeable %v, want %v", path, got, want)
			}
		}
	})
	if root := (reach{0}); !root.changes("/etc/hostname") {
		t.Error("root can change everything")
	}
}
