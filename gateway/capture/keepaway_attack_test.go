//go:build linux

package capture

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// playAttack is what hostile code in a sandbox does. Whatever it gets hold of
// it prints in a line that begins with LEAK.
func playAttack(args []string) error {
	attacks := map[string]func(args []string) error{
		"dial":          attackDial,
		"process":       attackProcess,
		"search":        attackSearch,
		"read":          attackRead,
		"connect":       attackConnect,
		"calls":         attackCalls,
		"replaced":      attackReplaced,
		"unmask":        attackUnmask,
		"unmasked":      attackUnmasked,
		"connect-later": attackConnectLater,
		"keys":          attackKeys,
		"terminal":      attackTerminal,
		"privilege":     attackPrivilege,
	}
	attack, ok := attacks[args[0]]
	if !ok {
		return fmt.Errorf("no such attack: %s", args[0])
	}
	return attack(args[1:])
}

func leak(format string, args ...any) { fmt.Printf("LEAK "+format+"\n", args...) }

// try reports a leak if err is nil and what was refused otherwise.
func try(what string, err error) {
	if err == nil {
		leak("%s", what)
		return
	}
	fmt.Printf("refused %s: %v\n", what, err)
}

func attackDial(addresses []string) error {
	for _, a := range addresses {
		c, err := net.DialTimeout("tcp", a, 5*time.Second)
		if err != nil {
			return err
		}
		if _, err := io.Copy(os.Stdout, c); err != nil {
			return err
		}
		c.Close()
	}
	return nil
}

// attackProcess tries everything on the process of the given number.
func attackProcess(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	for _, name := range []string{"environ", "mem", "maps", "auxv", "stack", "syscall", "io"} {
		// Root may open some and is refused when it reads.
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err == nil {
			if _, err = f.ReadAt(make([]byte, 1), 0); name == "mem" && errors.Is(err, unix.EIO) {
				err = nil // nothing is mapped at 0, but it is open
			}
			f.Close()
		}
		try("read "+name, err)
	}
	for _, name := range []string{"exe", "cwd", "root", "ns/mnt", "fd/0", "fd/3", "map_files"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err == nil {
			_, err = f.Readdirnames(1)
			f.Close()
			if name != "map_files" {
				err = nil
			}
		}
		try("follow "+name, err)
	}
	try("attach", unix.PtraceAttach(pid))
	try("seize", unix.PtraceSeize(pid))
	buffer := make([]byte, 8)
	local := []unix.Iovec{{Base: &buffer[0], Len: 8}}
	_, err = unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&attackAnchor)), Len: 8}}, 0)
	try("process_vm_readv", err)
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		_, err = unix.PidfdGetfd(fd, 0, 0)
		try("pidfd_getfd", err)
	}
	return nil
}

// attackAnchor is at an address that is mapped in every process of this binary.
var attackAnchor = [1]byte{1}

// attackSearch looks for a text in everything that /proc shows.
func attackSearch(args []string) error {
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/[0-9]*/task/*/environ", "/proc/keys", "/run/*", "/run/*/*", "/tmp/*", "/tmp/*/*", "/dev/shm/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, f := range files {
			if self, _ := filepath.Match("/proc/"+strconv.Itoa(os.Getpid())+"/*", f); self && filepath.Base(f) == "cmdline" {
				continue // args
			}
			b, err := os.ReadFile(f)
			if err == nil && strings.Contains(string(b), args[0]) && !strings.Contains(f, "cmdline") {
				leak("%s", f)
			}
		}
	}
	fmt.Println("searched")
	return nil
}

func attackRead(paths []string) error {
	for _, p := range paths {
		b, err := os.ReadFile(p)
		switch {
		case err != nil:
			fmt.Printf("refused %s: %v\n", p, err)
		case len(b) > 0:
			leak("%s: %s", p, b)
		default:
			fmt.Printf("empty %s\n", p)
		}
		if err := os.WriteFile(p, []byte("overwritten"), 0o600); err == nil {
			fmt.Printf("written %s\n", p)
		}
		if info, err := os.Lstat(p); err == nil && info.Mode()&os.ModeSymlink != 0 {
			continue // a name that leads there is no secret
		}
		try("remove "+p, os.Remove(p))
		try("rename "+p, os.Rename(p, p+".moved"))
		try("link "+p, os.Link(p, p+".linked"))
	}
	return nil
}

func attackConnect(paths []string) error {
	for _, p := range paths {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
			fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
			if err != nil {
				return err
			}
			try(fmt.Sprintf("connect %d %s", kind, p), unix.Connect(fd, &unix.SockaddrUnix{Name: p}))
			unix.Close(fd)
		}
	}
	return nil
}

// attackConnectLater waits until standard input has ended, and gives what is to
// be masked anew then the moment that it takes.
func attackConnectLater(paths []string) error {
	fmt.Println("waiting")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for range 300 {
		c, err := net.Dial("unix", paths[0])
		if err != nil {
			break
		}
		c.Close()
		time.Sleep(100 * time.Millisecond)
	}
	return attackConnect(paths)
}

// attackCalls makes the system calls that are ways out.
func attackCalls([]string) error {
	for _, family := range []int{unix.AF_VSOCK, unix.AF_PACKET, unix.AF_ALG, unix.AF_BLUETOOTH, unix.AF_CAN, unix.AF_TIPC, unix.AF_XDP, unix.AF_KEY, unix.AF_SMC} {
		fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
		if !errors.Is(err, unix.EAFNOSUPPORT) {
			leak("socket of family %d: %d %v", family, fd, err)
		}
		if _, err := unix.Socketpair(family, unix.SOCK_STREAM, 0); !errors.Is(err, unix.EAFNOSUPPORT) {
			leak("socket pair of family %d: %v", family, err)
		}
		// The kernel takes 32 bits of the family.
		if _, _, errno := unix.Syscall(unix.SYS_SOCKET, uintptr(family)|1<<32, unix.SOCK_STREAM, 0); errno != unix.EAFNOSUPPORT {
			leak("socket of family %d with high bits: %v", family, errno)
		}
	}
	for _, family := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		if _, err := unix.Socket(family, unix.SOCK_STREAM, 0); err != nil {
			leak("not: socket of family %d: %v", family, err)
		}
	}
	var params [120]byte
	if _, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0); errno != unix.ENOSYS {
		leak("io_uring: %v", errno)
	}
	if _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP); err == nil {
		leak("raw socket")
	}
	try("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	try("unmount", unix.Unmount("/tmp", unix.MNT_DETACH))
	try("set the host name", unix.Sethostname([]byte("x")))
	try("chroot", unix.Chroot("/"))
	try("enter the network of pid 1", func() error {
		fd, err := unix.Open("/proc/1/ns/net", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.Setns(fd, unix.CLONE_NEWNET)
	}())
	_ = unix.Kill(1, unix.SIGKILL)
	_ = unix.Kill(1, unix.SIGTERM)
	_ = unix.Kill(1, unix.SIGSTOP)
	fmt.Println("calls made")
	return nil
}

// attackReplaced reads paths in a tight loop until standard input ends.
func attackReplaced(paths []string) error {
	fmt.Println("reading")
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	for {
		for _, p := range paths {
			if b, err := os.ReadFile(p); err == nil && len(b) > 0 {
				leak("%s: %s", p, b)
				return nil
			}
		}
		select {
		case <-end:
			return nil
		default:
		}
	}
}

// attackKeys looks for a key of the caller's session.
func attackKeys(args []string) error {
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", args[0], 0)
	try("find key "+args[0], err)
	if err == nil {
		_, err = unix.KeyctlBuffer(unix.KEYCTL_READ, id, make([]byte, 64), 64)
		try("read it", err)
	}
	return nil
}

// attackTerminal types into the caller's terminal.
func attackTerminal([]string) error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	letter := byte('x')
	for _, request := range []uintptr{unix.TIOCSTI, unix.TIOCSTI | 1<<32, unix.TIOCLINUX} {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, tty.Fd(), request, uintptr(unsafe.Pointer(&letter)))
		if errno != unix.EPERM {
			leak("ioctl %#x: %v", request, errno)
		}
	}
	fmt.Println("typed")
	return nil
}

// attackPrivilege shows what is left of it.
func attackPrivilege([]string) error {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.HasPrefix(name, "Cap") && strings.Trim(value, "0") != "":
			leak("%s %s", name, value)
		case name == "NoNewPrivs" && value != "1", name == "Seccomp" && value != "2":
			leak("%s %s", name, value)
		}
	}
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil || bits != secureBits {
		leak("secure bits %#x %v", bits, err)
	}
	maps, err := os.ReadFile("/proc/self/uid_map")
	if fields := strings.Fields(string(maps)); err != nil || len(fields) != 3 || fields[0] != strconv.Itoa(os.Getuid()) || fields[2] != "1" {
		leak("user mapping %q %v", maps, err)
	}
	fmt.Println("privilege shown")
	return nil
}

// attackUnmask makes a user and mount namespace below the sandbox's, in which
// it has every capability, and goes on there.
func attackUnmask(args []string) error {
	argv := self("attack", append([]string{"unmasked"}, args...)...)
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Env: []string{}, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_CHROOT, unix.CAP_DAC_READ_SEARCH},
	}
	if os.Getuid() != 0 { // root may not map itself once more
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	return cmd.Run()
}

func attackUnmasked(args []string) error {
	path := args[0]
	dir := filepath.Dir(path)
	show := func() {
		for _, p := range []string{path, "/mnt/" + filepath.Base(path), "/mnt" + path} {
			if b, err := os.ReadFile(p); err == nil && len(b) > 0 {
				leak("%s: %s", p, b)
			}
		}
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err // without it nothing here is an attack
	}
	if err := unix.Mount("tmpfs", "/mnt", "tmpfs", 0, ""); err != nil {
		return err
	}
	try("unmount", unix.Unmount(path, 0))
	try("unmount lazily", unix.Unmount(path, unix.MNT_DETACH))
	try("unmount /run", unix.Unmount("/run", unix.MNT_DETACH))
	try("unmount /proc", unix.Unmount("/proc", unix.MNT_DETACH))
	show()
	fmt.Println("bind what lies below:", unix.Mount(dir, "/mnt", "", unix.MS_BIND, ""))
	show()
	try("bind / alone", unix.Mount("/", "/mnt", "", unix.MS_BIND, ""))
	show()
	if err := unix.Mount("/", "/mnt", "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
		try("unmount the copy", unix.Unmount("/mnt"+path, unix.MNT_DETACH))
	}
	show()
	try("move away", unix.Mount(path, "/mnt/x", "", unix.MS_MOVE, ""))
	try("make writable", unix.Mount("none", "/sys", "", unix.MS_BIND|unix.MS_REMOUNT, ""))
	if fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE); err == nil {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path)))
		if err == nil && len(b) > 0 {
			leak("clone of the tree: %s", b)
		}
	}
	fmt.Println("unmasking tried")
	return nil
}
