//go:build !linux

package audit

import "time"

// uptime returns a clock that nobody sets.
func uptime() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
