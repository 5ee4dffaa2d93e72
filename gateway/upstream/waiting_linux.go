package upstream

import "golang.org/x/sys/unix"

// waiting is how many bytes the kernel holds that were not read from c yet.
func (c *conn) waiting() (n int) {
	if c.raw == nil {
		return 0
	}
	err := c.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }) // 0 of what is no TCP
	if err != nil {
		return 0
	}
	return n
}
