//go:build !linux

package upstream

import "syscall"

// Waiting is not known here.
func Waiting(syscall.RawConn) int { return 0 }
