//go:build linux

package capture

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// NamespaceCookie returns the number that the kernel gave to the network
// namespace at path. Unlike its inode it is not given again until the machine
// starts anew. It is 0 on kernels before 5.14, which have none.
func NamespaceCookie(path string) (cookie uint64, err error) {
	ns, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	err = inNamespace(ns, func() error {
		cookie, err = cookieHere()
		return err
	})
	return cookie, err
}

// cookieHere is NamespaceCookie of the calling thread's namespace.
func cookieHere() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, nil
	}
	return cookie, os.NewSyscallError("SO_NETNS_COOKIE", err)
}
