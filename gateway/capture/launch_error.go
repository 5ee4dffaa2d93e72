//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// SetupError says that a sandbox cannot be made as it has to be, and so is not
// made at all.
type SetupError struct {
	Step string // what could not be done
	Err  error
	Hint string // what to change; "" if nothing is known to help
}

// Steps that Check tells apart.
const (
	stepNamespaces = "make namespaces"
	stepNetwork    = "open the sandbox's network"
)

// Error names the step and the reason.
func (e *SetupError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }

// Unwrap returns the reason.
func (e *SetupError) Unwrap() error { return e.Err }

// procSys reads a sysctl by its path below /proc/sys, "" if there is none.
func procSys(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// appArmorHint is the advice where AppArmor keeps unprivileged programs from
// user namespaces (Ubuntu 23.10 and later). %s is the program's path.
const appArmorHint = `AppArmor keeps programs without a profile from user namespaces; allow this one with /etc/apparmor.d/sallyport:
  abi <abi/4.0>,
  include <tunables/global>
  profile sallyport %s flags=(unconfined) { userns, }
then: sudo apparmor_parser -r /etc/apparmor.d/sallyport
or for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`

// namespaceHint says what to change when namespaces could not be made. sysctl
// reads a sysctl as procSys does.
func namespaceHint(err error, sysctl func(name string) string) string {
	if sysctl("kernel/unprivileged_userns_clone") == "0" {
		return "unprivileged user namespaces are turned off; turn them on: sudo sysctl -w kernel.unprivileged_userns_clone=1"
	}
	for _, kind := range []string{"user", "net", "mnt", "pid", "ipc", "uts"} {
		if sysctl("user/max_"+kind+"_namespaces") == "0" {
			return fmt.Sprintf("no %s namespace is allowed; allow some: sudo sysctl -w user.max_%s_namespaces=15000", kind, kind)
		}
	}
	if sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		path, pathErr := os.Executable()
		if pathErr != nil {
			path = "/usr/bin/sallyport"
		}
		return fmt.Sprintf(appArmorHint, path)
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "the limit of namespaces is reached (user.max_*_namespaces, or 32 nested user namespaces); raise it, or end other sandboxes"
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL):
		return "the kernel has no user namespaces (CONFIG_USER_NS); it needs one that has"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return "a container's seccomp profile, a chroot or a security module forbids user namespaces here; " +
			"in Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
	}
	return ""
}

// mountHint says what to change when a mount inside the new namespaces was
// refused.
func mountHint(err error, sysctl func(name string) string) string {
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
		return ""
	}
	if sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return namespaceHint(err, sysctl)
	}
	return "a container or security module forbids mounts here (a container engine that covers parts of /proc does); " +
		"in Docker: --security-opt systempaths=unconfined --security-opt apparmor=unconfined"
}
