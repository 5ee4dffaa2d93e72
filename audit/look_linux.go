package audit

import "golang.org/x/sys/unix"

// look is segmentFile.Look without a question for the times of the file. A
// kernel that was asked for them gives the next write a finer one, which costs
// as much as the write.
func look(fd int) (size int64, named bool, err error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_SIZE|unix.STATX_NLINK, &st); err != nil {
		return lookStat(fd)
	}
	return int64(st.Size), st.Nlink > 0, nil
}
