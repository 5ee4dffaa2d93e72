//go:build linux

package capture

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// When the kernel asks whether an idle client is still there, and how often
// before it gives it up: as package net does it. In seconds.
const (
	probeAfter = 15
	probeEvery = 15
	probes     = 9
)

// listen makes the transparent listening socket that w asks for. It may come
// back while old connections linger (SO_REUSEADDR, which package net sets). A
// connection has the keep-alive of its listener (inherited, Linux): package net
// would set it with four system calls for each that is accepted.
func listen(w wanted) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return onSocket(c, func(fd int) error { return errors.Join(w.prepare(fd), keepAlive(fd)) })
	}}
	config.SetMultipathTCP(false)
	network := "tcp4"
	if w.family.domain == unix.AF_INET6 {
		network = "tcp6"
	}
	l, err := config.Listen(context.Background(), network, w.at.String())
	if err != nil {
		return nil, held(err)
	}
	if err := queue(l.(*net.TCPListener)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// queue sets how many connections may wait for Accept.
func queue(l *net.TCPListener) error {
	c, err := l.SyscallConn()
	if err != nil {
		return err
	}
	return onSocket(c, func(fd int) error { return os.NewSyscallError("listen", unix.Listen(fd, backlog)) })
}

func keepAlive(fd int) error {
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, probeAfter},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, probeEvery},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("keep-alive", err)
		}
	}
	return nil
}

// onSocket runs f on a descriptor, which f must not keep.
func onSocket(c syscall.RawConn, f func(fd int) error) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}
