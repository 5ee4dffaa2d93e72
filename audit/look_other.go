//go:build !linux

package audit

// look is segmentFile.Look.
func look(fd int) (size int64, named bool, err error) { return lookStat(fd) }
