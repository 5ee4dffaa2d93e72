//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access rights of Landlock (linux/landlock.h).
const (
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | fileTruncate
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

	allRights = fileRights | readRights | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER

	fileTruncate = 1 << 14
	// landlockTruncate is the version of Landlock from which on all of these
	// exist.
	landlockTruncate = 3
)

// ErrNoLandlock says that the kernel has no Landlock, or one that is too old.
var ErrNoLandlock = errors.New("the kernel has no Landlock of version 3 (Linux 6.2, with landlock among its security modules)")

// Confine takes from the process, and what it starts, every file and folder
// that is not at or below one of the paths. It cannot be taken back. Paths
// that are not there are left out. A process that is confined cannot see the
// namespaces of other processes by /proc, nor mount anything.
func Confine(read, write []string) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < landlockTruncate {
		return ErrNoLandlock
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: allRights}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return os.NewSyscallError("landlock", errno)
	}
	defer unix.Close(int(fd))
	for rights, paths := range map[uint64][]string{readRights: read, allRights: write} {
		for _, path := range paths {
			if err := permit(int(fd), path, rights); err != nil {
				return fmt.Errorf("landlock: %s: %w", path, err)
			}
		}
	}
	if err := everyThread(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	return everyThread(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
}

// permit adds a rule for what is at a path and below it.
func permit(ruleset int, path string, rights uint64) error {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(f.Fd())}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
