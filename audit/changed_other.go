//go:build !linux

package audit

import (
	"os"
	"time"
)

// changed does not know, and says that the file was changed just now.
func changed(os.FileInfo) (inode uint64, at time.Time) { return 0, time.Now() }
