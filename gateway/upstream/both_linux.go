package upstream

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Both reads from a socket into two buffers with one system call. The zero value
// is ready; it is used by one at a time.
type Both struct {
	p      []byte
	behind Lender
	wait   bool
	read   func(fd uintptr) (done bool) // once, as it would be made anew for each
	n      int
	err    error
}

// Read is ReadBoth of an Arriving, which is c; raw is its socket, or nil.
func (b *Both) Read(c net.Conn, raw syscall.RawConn, p []byte, behind Lender, wait bool) (int, error) {
	if raw == nil {
		if wait {
			return c.Read(p)
		}
		return 0, errNone
	}
	if b.read == nil {
		b.read = b.readNow
	}
	b.p, b.behind, b.wait = p, behind, wait
	err := raw.Read(b.read)
	n := b.n
	if err == nil {
		err = b.err
	}
	b.p, b.behind, b.n, b.err = nil, nil, 0, nil
	switch {
	case err == unix.EAGAIN:
		return 0, errNone
	case err == nil && n == 0:
		return 0, io.EOF
	}
	if errno, ok := err.(syscall.Errno); ok {
		err = &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("read", errno)}
	}
	return n, err
}

// readNow reads what has arrived, and says whether that is all that is to be
// done.
func (b *Both) readNow(fd uintptr) bool {
	bufs := [...][]byte{b.p, b.behind.lend()}
	for {
		b.n, b.err = unix.Readv(int(fd), bufs[:])
		if b.err != unix.EINTR {
			break
		}
	}
	if b.n = max(b.n, 0); b.n <= len(b.p) {
		b.behind.back()
	}
	return !b.wait || b.err != unix.EAGAIN
}
