//go:build linux

package capture

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter closes ways out that namespaces do not:
//   - socket families that know no network namespace (vsock reaches the host of
//     a virtual machine) or are no use without a network;
//   - io_uring, which makes sockets past any filter;
//   - TIOCSTI and TIOCLINUX, which type into the terminal that the command
//     shares with the caller's shell.
//
// Families are listed, not refused one by one: unix, IPv4, IPv6 and netlink.

// abi holds what one system call interface of an architecture calls things.
// Numbers are of the kernel's tables; -1 is a call that it does not have.
type abi struct {
	audit                                          uint32
	socket, socketpair, socketcall, ioctl, ioUring int
}

// abis lists the interfaces that a kernel of this architecture offers; the
// first is the native one.
func abis() []abi {
	native := abi{
		socket: unix.SYS_SOCKET, socketpair: unix.SYS_SOCKETPAIR, socketcall: -1,
		ioctl: unix.SYS_IOCTL, ioUring: unix.SYS_IO_URING_SETUP,
	}
	switch runtime.GOARCH {
	case "amd64":
		native.audit = unix.AUDIT_ARCH_X86_64
		return []abi{native, {unix.AUDIT_ARCH_I386, 359, 360, 102, 54, 425}}
	case "arm64":
		native.audit = unix.AUDIT_ARCH_AARCH64
		return []abi{native, {unix.AUDIT_ARCH_ARM, 281, 288, 102, 54, 425}}
	case "riscv64":
		native.audit = unix.AUDIT_ARCH_RISCV64
		return []abi{native}
	case "loong64":
		native.audit = unix.AUDIT_ARCH_LOONGARCH64
		return []abi{native}
	}
	return nil
}

// Offsets into struct seccomp_data (linux/seccomp.h). All architectures of
// abis are little-endian: the low half of an argument comes first.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
	dataArg1   = 24
)

// x32 marks the calls of the x32 interface, which shares its audit number with
// x86-64 (asm/unistd.h, __X32_SYSCALL_BIT).
const x32 = 0x40000000

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump compares the loaded word with k and skips yes or no instructions.
func jump(test uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | test, K: k, Jt: yes, Jf: no}
}

func verdict(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}

func refuse(errno unix.Errno) unix.SockFilter {
	return verdict(unix.SECCOMP_RET_ERRNO | uint32(errno))
}

// when yields body if the loaded call number is number; body ends in a verdict.
func when(number int, body ...unix.SockFilter) []unix.SockFilter {
	if number < 0 {
		return nil
	}
	return append([]unix.SockFilter{jump(unix.BPF_JEQ, uint32(number), 0, uint8(len(body)))}, body...)
}

// rules is the part of the filter for the calls of one interface.
func (a abi) rules() []unix.SockFilter {
	family := []unix.SockFilter{
		load(dataArg0),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 4, 0),
		jump(unix.BPF_JEQ, unix.AF_INET, 3, 0),
		jump(unix.BPF_JEQ, unix.AF_INET6, 2, 0),
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 1, 0),
		refuse(unix.EAFNOSUPPORT),
		verdict(unix.SECCOMP_RET_ALLOW),
	}
	terminal := []unix.SockFilter{
		load(dataArg1), // the kernel looks at 32 bits of the request
		jump(unix.BPF_JEQ, unix.TIOCSTI, 2, 0),
		jump(unix.BPF_JEQ, unix.TIOCLINUX, 1, 0),
		verdict(unix.SECCOMP_RET_ALLOW),
		refuse(unix.EPERM),
	}
	program := []unix.SockFilter{load(dataNumber)}
	if a.audit == unix.AUDIT_ARCH_X86_64 {
		program = append(program, jump(unix.BPF_JGE, x32, 0, 1), refuse(unix.ENOSYS))
	}
	program = append(program, when(a.socket, family...)...)
	program = append(program, when(a.socketpair, family...)...)
	// Its arguments are in memory, where a filter cannot look.
	program = append(program, when(a.socketcall, refuse(unix.ENOSYS))...)
	program = append(program, when(a.ioUring, refuse(unix.ENOSYS))...)
	program = append(program, when(a.ioctl, terminal...)...)
	return append(program, verdict(unix.SECCOMP_RET_ALLOW))
}

// commandFilter is the program for every interface of this architecture. A
// call of any other is refused.
func commandFilter() ([]unix.SockFilter, error) {
	list := abis()
	if len(list) == 0 {
		return nil, fmt.Errorf("no system call filter for %s", runtime.GOARCH)
	}
	program := []unix.SockFilter{load(dataArch)}
	for _, a := range list {
		rules := a.rules()
		program = append(program, jump(unix.BPF_JEQ, a.audit, 0, uint8(len(rules))))
		program = append(program, rules...)
	}
	return append(program, refuse(unix.ENOSYS)), nil
}

// installFilter puts commandFilter on the calling thread; no_new_privs is set.
func installFilter() error {
	program, err := commandFilter()
	if err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&p)), 0, 0)
}
