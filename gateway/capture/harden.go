//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrPartlyHardened says that the process was built in a way in which its
// threads cannot all be changed (with cgo): it has a filter, and its
// capabilities still.
var ErrPartlyHardened = errors.New("built with cgo: capabilities are kept, files are not confined")

// kept are the capabilities that a gateway needs after its start: rules,
// transparent sockets and links; entering the namespaces of sandboxes and
// finding them by processes of other users; port 53; the group of a socket
// that is made anew; reading what it reads at a reload, whoever owns it; and
// memory that stays out of the swap.
func kept() uint64 {
	var set uint64
	for _, c := range []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE,
		unix.CAP_NET_BIND_SERVICE, unix.CAP_CHOWN, unix.CAP_DAC_READ_SEARCH, unix.CAP_IPC_LOCK} {
		set |= 1 << c
	}
	return set
}

// Harden gives up what a gateway does not need once its sockets are there:
// every other capability, whatever a program that it starts could gain, and
// system calls that no gateway makes. What it starts, such as the command of
// a secret's source, is bound in the same way. Captures can still be opened.
// With foreign, it keeps the right to write what belongs to other users.
func Harden(foreign bool) error {
	if err := filterGateway(); err != nil {
		return fmt.Errorf("system call filter: %w", err)
	}
	keep := kept()
	if foreign {
		keep |= 1 << unix.CAP_DAC_OVERRIDE
	}
	return giveUp(keep)
}

// giveUp leaves keep, of what there is, to every thread.
func giveUp(keep uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		// Fails where it may not, and then there is nothing to drop.
		if err := everyThread(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errors.Is(err, ErrPartlyHardened) {
			return err
		}
	}
	for i := range data {
		part := uint32(keep >> (32 * i))
		data[i].Effective &= part
		data[i].Permitted &= part
		data[i].Inheritable = 0
	}
	err := everyThread(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&data)
	if err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// everyThread makes one system call on every thread of the process.
func everyThread(call, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(call, a, b, c, 0, 0, 0)
	switch errno {
	case 0:
		return nil
	case syscall.ENOTSUP:
		return ErrPartlyHardened
	}
	return errno
}

// forbidden are the system calls that a gateway, and what it starts, never
// makes: other processes' memory, the kernel's code, clock, keys and devices,
// the root of the file system, and io_uring, which passes by filters.
func forbidden() []int {
	return []int{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
		unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP,
		unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT,
		unix.SYS_ACCT, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_PERSONALITY,
	}
}

// gatewayFilter refuses forbidden calls, socket families other than those of
// a gateway, and the calls of every interface but the native one.
func gatewayFilter() ([]unix.SockFilter, error) {
	list := abis()
	if len(list) == 0 {
		return nil, fmt.Errorf("none for %s", runtime.GOARCH)
	}
	program := []unix.SockFilter{load(dataArch), jump(unix.BPF_JEQ, list[0].audit, 1, 0), refuse(unix.ENOSYS), load(dataNumber)}
	if list[0].audit == unix.AUDIT_ARCH_X86_64 {
		program = append(program, jump(unix.BPF_JGE, x32, 0, 1), refuse(unix.ENOSYS))
	}
	for _, number := range forbidden() {
		program = append(program, when(number, refuse(unix.EPERM))...)
	}
	program = append(program, when(unix.SYS_SOCKET,
		load(dataArg0),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 4, 0),
		jump(unix.BPF_JEQ, unix.AF_INET, 3, 0),
		jump(unix.BPF_JEQ, unix.AF_INET6, 2, 0),
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 1, 0),
		refuse(unix.EAFNOSUPPORT),
		verdict(unix.SECCOMP_RET_ALLOW))...)
	return append(program, verdict(unix.SECCOMP_RET_ALLOW)), nil
}

// filterGateway puts gatewayFilter on every thread, with no_new_privs, which
// the kernel carries over to them.
func filterGateway() error {
	program, err := gatewayFilter()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("no_new_privs", err)
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(&p)
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
