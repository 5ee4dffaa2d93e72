//go:build linux

package capture

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Readiness waits for many sockets with one goroutine.
type Readiness struct {
	file *os.File // an epoll
	raw  syscall.RawConn
}

// NewReadiness returns one that waits for nothing yet.
func NewReadiness() (*Readiness, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	_ = unix.SetNonblock(fd, true) // so that the runtime waits for it, and no thread does
	f := os.NewFile(uintptr(fd), "epoll")
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Readiness{file: f, raw: raw}, nil
}

// Await has Next return key once, when there is something to read on a socket,
// or at once if there is. Known says that the socket was awaited before.
func (r *Readiness) Await(socket syscall.RawConn, key int32, known bool) error {
	op := unix.EPOLL_CTL_ADD
	if known {
		op = unix.EPOLL_CTL_MOD
	}
	var changed error
	if err := r.raw.Control(func(set uintptr) {
		if err := socket.Control(func(fd uintptr) {
			changed = unix.EpollCtl(int(set), op, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: key})
		}); err != nil {
			changed = err
		}
	}); err != nil {
		return err
	}
	return os.NewSyscallError("epoll_ctl", changed)
}

// Next waits for sockets and appends their keys to out. It is for one goroutine.
func (r *Readiness) Next(out []int32) ([]int32, error) {
	var events [8]unix.EpollEvent
	n, failed := 0, error(nil)
	err := r.raw.Read(func(set uintptr) bool {
		n, failed = unix.EpollWait(int(set), events[:], 0)
		return n > 0 || failed != nil && failed != unix.EINTR
	})
	if err != nil || failed != nil {
		return out, errors.Join(err, os.NewSyscallError("epoll_wait", failed))
	}
	for _, e := range events[:n] {
		out = append(out, e.Fd)
	}
	return out, nil
}

// Close ends a Next that waits with an error. No socket is closed.
func (r *Readiness) Close() error { return r.file.Close() }
