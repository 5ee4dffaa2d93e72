//go:build linux

package capture

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bits of PR_SET_SECUREBITS (linux/securebits.h): user id 0 means nothing,
// changes of user id change no capability, none can be made ambient, and none
// of it can be undone.
const secureBits = 1<<0 | 1<<1 | // NOROOT and its lock
	1<<2 | 1<<3 | // NO_SETUID_FIXUP and its lock
	1<<5 | // KEEP_CAPS_LOCKED, with KEEP_CAPS off
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE and its lock

// maxCapability is above every capability that any kernel has.
const maxCapability = 63

// dropPrivilege takes from the calling thread, and from what it executes,
// every capability, the means to regain any, the caller's keyring and the
// system calls of commandFilter. It cannot be undone.
func dropPrivilege() error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"leave the session keyring", leaveKeyring},
		{"drop ambient capabilities", func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
		}},
		{"empty the capability bounding set", dropBoundingSet},
		{"lock the secure bits", func() error { return unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0) }},
		{"drop capabilities", dropCapabilities},
		{"set no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"install the system call filter", installFilter},
		{"stay untraceable", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return &SetupError{Step: s.name, Err: err}
		}
	}
	return nil
}

// leaveKeyring joins a new, empty session keyring: keys of the caller's session
// (Kerberos tickets, file system keys) stay outside.
func leaveKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if errors.Is(err, unix.ENOSYS) {
		return nil // a kernel without keyrings has nothing in them
	}
	return err
}

func dropBoundingSet() error {
	for c := uintptr(0); c <= maxCapability; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			return nil // c is above the last one
		} else if err != nil {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	return nil
}

func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// errnoOf returns the errno of err, 0 for nil and otherwise when there is none.
func errnoOf(err error, otherwise syscall.Errno) syscall.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return otherwise
}
