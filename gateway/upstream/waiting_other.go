//go:build !linux

package upstream

// waiting is not known here.
func (c *conn) waiting() int { return 0 }
