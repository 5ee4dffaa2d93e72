package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cover hides a needle from searches of this process's own memory.
const cover = 0x5a

// needle is a byte string that is looked for, held covered.
type needle struct {
	name    string
	covered []byte
}

// in says whether the needle is part of b.
func (n needle) in(b []byte) bool {
	first := n.covered[0] ^ cover
	for {
		i := bytes.IndexByte(b, first)
		if i < 0 || len(b)-i < len(n.covered) {
			return false
		}
		j := 1
		for j < len(n.covered) && b[i+j]^cover == n.covered[j] {
			j++
		}
		if j == len(n.covered) {
			return true
		}
		b = b[i+1:]
	}
}

// searcher looks everywhere for its needles and prints where they are.
type searcher struct {
	needles []needle
	report  map[string]bool
	stage   string
}

func (s *searcher) look(where string, b []byte) {
	for _, n := range s.needles {
		line := fmt.Sprintf("FOUND %s in %s (%s)", n.name, where, s.stage)
		if n.in(b) && !s.report[line] {
			s.report[line] = true
			fmt.Println(line)
		}
	}
}

// search looks for needles, each NAME=HEX with the bytes covered, below the
// folders after "--" and in every process and socket that can be reached; then
// once more as root of a user namespace of its own.
func search(args []string) error {
	s := &searcher{report: map[string]bool{}, stage: os.Getenv("PROBE_STAGE")}
	var dirs []string
	for i, a := range args {
		if a == "--" {
			dirs = args[i+1:]
			break
		}
		name, text, _ := strings.Cut(a, "=")
		b, err := hex.DecodeString(text)
		if err != nil || len(b) == 0 {
			return fmt.Errorf("needle %q: not hexadecimal", a)
		}
		s.needles = append(s.needles, needle{name, b})
	}
	if s.stage == "root" {
		s.uncover()
	}
	s.environment()
	s.processes()
	s.sockets()
	for _, d := range append(dirs, "/run", "/tmp", "/dev/shm", "/proc", "/var/tmp", "/sys/kernel/debug") {
		s.files(d)
	}
	fmt.Printf("SEARCHED %s\n", s.stage)
	if s.stage == "root" {
		return nil
	}
	return again(args)
}

// again runs the search as root of namespaces of its own.
func again(args []string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{"search"}, args...)...)
	cmd.Env = append(os.Environ(), "PROBE_STAGE=root")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	} else { // only a privileged process may map 0; every capability without a number will do
		for c := range uintptr(unix.CAP_LAST_CAP + 1) {
			cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, c)
		}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Println("SEARCHED root: namespaces are refused:", err)
		return nil
	}
	return err
}

// uncover takes away whatever mounts hide things, and mounts a fresh /proc.
func (s *searcher) uncover() {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] != "/" {
			for _, flags := range []int{0, unix.MNT_DETACH} {
				_ = unix.Unmount(f[4], flags) // most are locked, which is the point
			}
		}
	}
	_ = unix.Mount("proc", "/proc", "proc", 0, "")
	_ = unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if dir, err := os.MkdirTemp("", "bind"); err == nil {
		if unix.Mount("/", dir, "", unix.MS_BIND, "") == nil { // without the mounts below
			fmt.Println("BOUND the root")
			s.files(dir)
		}
	}
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "CapEff") {
				fmt.Print("ROOT ", line)
			}
		}
	}
}

func (s *searcher) environment() {
	for _, kv := range os.Environ() {
		s.look("the environment", []byte(kv))
	}
}

// processes reads the memory of every process in four ways.
func (s *searcher) processes() {
	entries, _ := os.ReadDir("/proc") // none is none
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		for _, f := range []string{"environ", "cmdline", "auxv", "maps", "status", "stack"} {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, f)); err == nil {
				s.look(fmt.Sprintf("/proc/%d/%s", pid, f), b)
			}
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is well formed
		for _, fd := range fds {
			s.file(fd)
		}
		s.memory(pid)
	}
	// Processes of outer namespaces have numbers too, which /proc does not show.
	for pid := 1; pid < 4096; pid++ {
		s.peek(pid, 0x400000, 4096)
	}
}

// region is a part of the memory of a process.
type region struct{ from, to uint64 }

func regions(pid int) (out []region) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		var r region
		var mode string
		if n, err := fmt.Sscanf(line, "%x-%x %s", &r.from, &r.to, &mode); n == 3 && err == nil && mode[0] == 'r' {
			out = append(out, r)
		}
	}
	return out
}

// maxRegion bounds what is read of one region, in bytes.
const maxRegion = 64 << 20

func (s *searcher) memory(pid int) {
	if pid == os.Getpid() {
		return // what it reads passes through its own memory
	}
	list := regions(pid)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err == nil {
		for _, r := range list {
			b := make([]byte, min(r.to-r.from, maxRegion))
			if n, _ := mem.ReadAt(b, int64(r.from)); n > 0 { // a region may have gone
				s.look(fmt.Sprintf("/proc/%d/mem", pid), b[:n])
			}
		}
		_ = mem.Close() // only read
	}
	for _, r := range list {
		s.peek(pid, r.from, min(r.to-r.from, maxRegion))
	}
	s.trace(pid, list)
}

// peek reads with process_vm_readv.
func (s *searcher) peek(pid int, from, size uint64) {
	if pid == os.Getpid() || size == 0 {
		return
	}
	b := make([]byte, size)
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(from), Len: int(size)}}, 0)
	if err == nil && n > 0 {
		s.look(fmt.Sprintf("the memory of %d by process_vm_readv", pid), b[:n])
	}
}

// trace reads with ptrace.
func (s *searcher) trace(pid int, list []region) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if pid == os.Getppid() || syscall.PtraceAttach(pid) != nil {
		return
	}
	defer func() { _ = syscall.PtraceDetach(pid) }() // it may have gone
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return
	}
	for _, r := range list[:min(len(list), 8)] {
		b := make([]byte, min(r.to-r.from, 64<<10))
		if n, err := syscall.PtracePeekData(pid, uintptr(r.from), b); err == nil {
			s.look(fmt.Sprintf("the memory of %d by ptrace", pid), b[:n])
		}
	}
}

// sockets connects to every unix socket there is a trace of, and reads.
func (s *searcher) sockets() {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return
	}
	names := strings.Fields(os.Getenv("PROBE_SOCKETS"))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 7 {
			names = append(names, f[7])
		}
	}
	for _, name := range names {
		c, err := net.DialTimeout("unix", name, time.Second)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n") // whatever it speaks
		b, _ := io.ReadAll(io.LimitReader(c, 1<<20))
		s.look("the socket "+name, b)
		_ = c.Close() // only looked at
	}
}

// maxFile bounds what is read of one file, in bytes.
const maxFile = 8 << 20

func (s *searcher) files(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read is not read
		switch {
		case err != nil:
			return nil
		case d.IsDir() && (path == "/proc" || path == "/sys") && dir != path:
			return fs.SkipDir
		case d.IsDir() && strings.HasPrefix(path, "/proc/") && strings.Count(path, "/") > 2:
			return fs.SkipDir // processes has read them
		case d.IsDir() && slices.Contains([]string{"/usr", "/root", "/home", "/lib", "/opt"}, strings.TrimPrefix(path, dir)):
			return fs.SkipDir // of a whole system: large, and of no gateway
		}
		s.file(path)
		return nil
	})
}

func (s *searcher) file(path string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	b := make([]byte, 0, 64<<10)
	for len(b) < maxFile {
		if len(b) == cap(b) {
			b = append(b, make([]byte, len(b))...)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if n <= 0 || err != nil {
			break
		}
		b = b[:len(b)+n]
	}
	s.look("the file "+path, b)
}
