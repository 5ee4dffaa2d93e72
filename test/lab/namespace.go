//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Where named namespaces are bound, as by the ip command.
const namespaceDir = "/run/netns"

// prefix begins the name of every namespace of a lab; the process ID follows.
const prefix = "splab-"

// Namespace is a network namespace of the lab.
type Namespace struct {
	Name   string // below /run/netns
	handle netns.NsHandle
	home   netns.NsHandle // where threads go back to
	jobs   chan func()    // run on a thread that stays in the namespace
	done   chan struct{}  // closed when that thread is gone
}

// shareNames makes namespaceDir a mount of its own that other mount namespaces
// follow, as "ip netns add" does and leaves it: a service that has one sees the
// names that are given later, and that command covers none that were given before.
func shareNames() error {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(namespaceDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // other labs do the same
		return err
	}
	err = unix.Mount("", namespaceDir, "", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Mount(namespaceDir, namespaceDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", namespaceDir, "", unix.MS_SHARED|unix.MS_REC, "")
}

// newNamespace makes a named namespace whose lo is up.
func newNamespace(home netns.NsHandle, name string) (*Namespace, error) {
	if err := shareNames(); err != nil {
		return nil, fmt.Errorf("share %s: %w", namespaceDir, err)
	}
	n := &Namespace{Name: fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), name), home: home}
	err := onThread(home, func() (err error) {
		n.handle, err = netns.NewNamed(n.Name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", n.Name, err)
	}
	n.startWorker()
	return n, n.Do(func() error { return linkUp("lo") })
}

// Path is where the namespace is bound.
func (n *Namespace) Path() string { return filepath.Join(namespaceDir, n.Name) }

// onThread runs f on a thread of its own, which goes back to home.
func onThread(home netns.NsHandle, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := f()
		if back := netns.Set(home); back == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with the goroutine
		done <- err
	}()
	return <-done
}

// Do runs f on a thread in the namespace. Sockets that f itself makes belong
// to the namespace for good; goroutines that f starts are elsewhere.
func (n *Namespace) Do(f func() error) error {
	return onThread(n.home, func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter namespace %s: %w", n.Name, err)
		}
		return f()
	})
}

// startWorker starts the thread on which processes start: they die with it,
// so it lives as long as the namespace.
func (n *Namespace) startWorker() {
	n.jobs, n.done = make(chan func()), make(chan struct{})
	handle, jobs, done := n.handle, n.jobs, n.done
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := netns.Set(handle); err != nil {
			panic(err) // a namespace that is held open
		}
		for job := range jobs {
			job()
		}
	}()
}

// stopWorker ends the thread and what was started on it.
func (n *Namespace) stopWorker() {
	close(n.jobs)
	<-n.done
}

// Start starts cmd in the namespace. It is killed when the test process ends,
// however that comes.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error, 1)
	n.jobs <- func() { done <- cmd.Start() }
	return <-done
}

// Close removes the namespace.
func (n *Namespace) Close() error {
	n.stopWorker()
	return errors.Join(n.handle.Close(), unbind(n.Name))
}

func unbind(name string) error {
	path := filepath.Join(namespaceDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}

// removeStale removes namespaces of labs whose process is gone.
func removeStale() error {
	var errs []error
	for _, name := range Namespaces() {
		pid, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && syscall.Kill(n, 0) == nil {
			continue
		}
		if err := unbind(name); !errors.Is(err, os.ErrNotExist) { // another lab that opens removes it too
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Namespaces lists the namespaces of all labs of the machine.
func Namespaces() []string {
	entries, err := os.ReadDir(namespaceDir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			out = append(out, e.Name())
		}
	}
	return out
}
