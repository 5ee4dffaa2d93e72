package upstream

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Waiting is how many bytes the kernel holds that were not read from a
// connection of TCP yet; 0 of any other.
func Waiting(raw syscall.RawConn) (n int) {
	if raw == nil {
		return 0
	}
	err := raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }) // 0 of what is no TCP
	if err != nil {
		return 0
	}
	return n
}

// Untaken is how many bytes the kernel holds that were written to a connection of
// TCP and that the peer's has not taken yet; 0 of any other.
func Untaken(raw syscall.RawConn) (n int) {
	err := raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) // 0 of what is no TCP
	if err != nil {
		return 0
	}
	return n
}

// Arrived waits until there is something to read from a connection of TCP, be it
// its end, and reads nothing. It needs neither a buffer nor a deep stack. The
// connection's deadline for reading, or its close, ends it with an error.
func Arrived(raw syscall.RawConn) error {
	return raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR // what else is wrong, a read tells
	})
}
