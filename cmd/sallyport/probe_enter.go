package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// inProcess runs the probe where a process is: in its network, its file
// system, and among the processes that it sees. It is how a container is
// entered.
func inProcess(pid int, args ...string) ([]byte, error) {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	nothing, err := os.Open(os.DevNull) // the process may have none
	if err != nil {
		return nil, err
	}
	defer nothing.Close()
	spaces, err := namespacesOf(pid)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range spaces {
			_ = s.file.Close() // was only read
		}
	}()
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		for _, s := range spaces {
			if err := s.enter(); err != nil {
				done <- result{err: fmt.Errorf("enter the %s namespace of process %d: %w", s.name, pid, err)}
				return
			}
		}
		cmd := exec.Command("/proc/self/fd/3", args...) // the program itself is not in that file system
		cmd.Stdin, cmd.ExtraFiles, cmd.Dir = nothing, []*os.File{exe}, "/"
		out, err := output(cmd)
		done <- result{out, err}
	}()
	r := <-done
	return r.out, r.err
}

// space is a namespace to be entered.
type space struct {
	name string
	kind int
	file *os.File
}

// namespacesOf opens the namespaces of a process that are not the caller's
// own, the one of mounts last: /proc is another then.
func namespacesOf(pid int) ([]space, error) {
	var out []space
	for _, s := range []space{{name: "net", kind: unix.CLONE_NEWNET}, {name: "ipc", kind: unix.CLONE_NEWIPC},
		{name: "pid", kind: unix.CLONE_NEWPID}, {name: "mnt", kind: unix.CLONE_NEWNS}} {
		theirs := filepath.Join("/proc", fmt.Sprint(pid), "ns", s.name)
		f, err := os.Open(theirs)
		if err != nil {
			return out, fmt.Errorf("process %d: %w", pid, err)
		}
		a, errA := f.Stat()
		b, errB := os.Stat(filepath.Join("/proc/self/ns", s.name))
		if errA == nil && errB == nil && os.SameFile(a, b) {
			_ = f.Close() // was only read
			continue
		}
		s.file = f
		out = append(out, s)
	}
	return out, nil
}

func (s space) enter() error {
	if s.kind == unix.CLONE_NEWNS { // the threads of a process share their root
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
	}
	return unix.Setns(int(s.file.Fd()), s.kind)
}
