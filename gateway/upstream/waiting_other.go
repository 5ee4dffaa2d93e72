//go:build !linux

package upstream

import "syscall"

// Waiting is not known here.
func Waiting(syscall.RawConn) int { return 0 }

// Untaken is not known here: there may be some.
func Untaken(syscall.RawConn) int { return 1 }

// Arrived does not wait: here whoever reads does.
func Arrived(syscall.RawConn) error { return nil }
