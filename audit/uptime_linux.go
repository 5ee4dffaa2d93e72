package audit

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns a clock that nobody sets, and that goes on while the machine
// sleeps.
func uptime() func() time.Duration {
	begun := time.Now()
	return func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
			return time.Since(begun)
		}
		return time.Duration(t.Nano())
	}
}
