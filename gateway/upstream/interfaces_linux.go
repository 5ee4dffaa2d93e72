package upstream

import (
	"errors"

	"golang.org/x/sys/unix"
)

// addressWatch is a socket on which the kernel says that an interface has got
// or lost an address (rtnetlink(7)). To look whether it did costs a hundredth
// of reading all addresses. The zero value is ready for use.
type addressWatch struct {
	fd    int
	state watchState
}

type watchState uint8

const (
	unwatched watchState = iota
	watched
	unwatchable // or closed
)

// changed reports whether there was a change since it was asked before, and is
// true whenever it cannot tell.
func (w *addressWatch) changed() bool {
	switch w.state {
	case unwatched:
		w.open()
		return true // of what was before
	case unwatchable:
		return true
	}
	var told bool
	var b [4096]byte // what does not fit is cut off: that something came is enough
	for {
		_, err := unix.Read(w.fd, b[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return told
		case errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.ENOBUFS): // more came than was kept
			told = true
		default:
			w.close()
			return true
		}
	}
}

func (w *addressWatch) open() {
	w.state = unwatchable
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return
	}
	groups := uint32(unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd) // nothing was done with it
		return
	}
	w.fd, w.state = fd, watched
}

func (w *addressWatch) close() {
	if w.state == watched {
		_ = unix.Close(w.fd) // nothing is written to it
	}
	w.state = unwatchable
}
