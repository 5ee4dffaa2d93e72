//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Finding is one thing that a host has or lacks.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Needed string `json:"needed,omitempty"` // by which command, "run" or "serve"; "" if it is only good to know
	Detail string `json:"detail"`           // what was found
	Hint   string `json:"hint,omitempty"`   // what to change; "" if OK or nothing is known to help
}

// Check finds out whether this host can do what the captures need. What run
// needs is tried in earnest: a sandbox is made and thrown away. As Prepare does,
// it makes this process untraceable and needs ChildMain in the program.
func Check() []Finding {
	list := []Finding{checkKernel()}
	list = append(list, checkSandbox()...)
	return append(list,
		checkFilter(),
		checkCapabilities(),
		checkForwarding(),
		checkIPv6(),
		checkAppArmor(),
		checkLandlock(),
	)
}

// The oldest kernel release that is meant to have everything: nf_tables with
// TPROXY in the inet family, in a user namespace.
const (
	oldestMajor = 5
	oldestMinor = 4
)

func checkKernel() Finding {
	f := Finding{Name: "kernel", Needed: "run"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f.Detail = err.Error()
		return f
	}
	f.Detail = unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(f.Detail, "%d.%d", &major, &minor); err != nil {
		f.Detail += " (not understood)"
		return f
	}
	f.OK = major > oldestMajor || major == oldestMajor && minor >= oldestMinor
	if !f.OK {
		f.Hint = fmt.Sprintf("Linux %d.%d or later is needed", oldestMajor, oldestMinor)
	}
	return f
}

// The parts of a sandbox, in the order in which Prepare makes them.
const (
	partNamespaces = "user namespaces"
	partKeepAway   = "private file system"
	partNetwork    = "nf_tables with TPROXY and NFLOG"
)

// checkSandbox makes a sandbox and says how far it came.
func checkSandbox() []Finding {
	s, err := Prepare(Command{Argv: []string{"true"}, Dir: "/"})
	if err == nil {
		err = s.Close()
	}
	return sandboxFindings(err)
}

// sandboxFindings tells which part of a sandbox err, of Prepare, is about.
func sandboxFindings(err error) []Finding {
	failed, hint := "", ""
	if err != nil {
		failed = partKeepAway
		if e, ok := errors.AsType[*SetupError](err); ok {
			hint = e.Hint
			switch e.Step {
			case stepNamespaces:
				failed = partNamespaces
			case stepNetwork:
				failed = partNetwork
			}
		}
	}
	var list []Finding
	broken := false
	for _, part := range []string{partNamespaces, partKeepAway, partNetwork} {
		f := Finding{Name: part, Needed: "run", OK: !broken, Detail: "tried: works"}
		switch {
		case part == failed:
			broken, f.OK, f.Detail, f.Hint = true, false, err.Error(), hint
		case broken:
			f.Detail = "not tried, because of the one before"
		}
		list = append(list, f)
	}
	return list
}

func checkFilter() Finding {
	f := Finding{Name: "system call filters", Needed: "run", Detail: runtime.GOARCH}
	if len(abis()) == 0 {
		f.Detail += ": no filter is known for this architecture"
		return f
	}
	// A filter that is no program is refused with EFAULT where there are filters.
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0, 0, 0)
	f.OK = errors.Is(err, unix.EFAULT)
	if !f.OK {
		f.Detail = fmt.Sprint(err)
		f.Hint = "the kernel needs CONFIG_SECCOMP_FILTER"
	}
	return f
}

func checkCapabilities() Finding {
	f := Finding{Name: "capabilities", Needed: "serve"}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		f.Detail = err.Error()
		return f
	}
	var missing []string
	for _, c := range []struct {
		name string
		bit  uint
	}{{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			missing = append(missing, c.name)
		}
	}
	f.OK = len(missing) == 0
	f.Detail = fmt.Sprintf("user id %d, all that serve needs", os.Geteuid())
	if !f.OK {
		f.Detail = fmt.Sprintf("user id %d, without %s", os.Geteuid(), strings.Join(missing, ", "))
		f.Hint = "run needs none; for serve be root, or in a systemd unit: AmbientCapabilities=" + strings.Join(missing, " ")
	}
	return f
}

func checkForwarding() Finding {
	f := Finding{Name: "no forwarding", OK: true, Detail: "net.ipv4.ip_forward and net.ipv6.conf.all.forwarding are 0"}
	for name, key := range map[string]string{
		"net/ipv4/ip_forward": "net.ipv4.ip_forward", "net/ipv6/conf/all/forwarding": "net.ipv6.conf.all.forwarding",
	} {
		if value := procSys(name); value != "" && value != "0" {
			f.OK = false
			f.Detail = key + " is " + value
			f.Hint = "an interface capture on this host leans on its rules and on its routing table; if nothing else needs forwarding: sudo sysctl -w " + key + "=0"
		}
	}
	return f
}

func checkIPv6() Finding {
	_, err := os.Stat("/proc/net/if_inet6")
	if err != nil {
		return Finding{Name: "IPv6", Detail: "not in this kernel, or turned off: sandboxes have IPv4 alone"}
	}
	return Finding{Name: "IPv6", OK: true, Detail: "sandboxes have both"}
}

func checkAppArmor() Finding {
	f := Finding{Name: "AppArmor", OK: true, Detail: "does not restrict user namespaces"}
	if procSys("kernel/apparmor_restrict_unprivileged_userns") != "1" {
		return f
	}
	f.Detail = "restricts user namespaces to programs with a profile"
	if profile, err := os.ReadFile("/proc/self/attr/current"); err == nil {
		f.Detail += "; this one runs under " + strings.TrimSpace(string(profile))
	}
	return f // whether that matters is what the sandbox that was tried tells
}

func checkLandlock() Finding {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(nil)), 0, version)
	if errno != 0 {
		return Finding{Name: "Landlock", Detail: "not there; sallyport does not need it"}
	}
	return Finding{Name: "Landlock", OK: true, Detail: fmt.Sprintf("ABI %d; sallyport does not need it", abi)}
}
