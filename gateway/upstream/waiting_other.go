//go:build !linux

package upstream

import (
	"net"
	"syscall"
)

// Waiting is not known here.
func Waiting(syscall.RawConn) int { return 0 }

// Untaken is not known here: there may be some.
func Untaken(syscall.RawConn) int { return 1 }

// Arrived does not wait: here whoever reads does.
func Arrived(syscall.RawConn) error { return nil }

// Both reads into one buffer here.
type Both struct{}

// Read is ReadBoth of an Arriving, which is c.
func (*Both) Read(c net.Conn, _ syscall.RawConn, p []byte, _ Lender, wait bool) (int, error) {
	if wait {
		return c.Read(p)
	}
	return 0, errNone
}
