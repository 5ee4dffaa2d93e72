package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// rotateRetry is how long a segment goes on growing after its successor could
// not be made.
const rotateRetry = time.Second

// rotateIfDue begins the next segment if this one is full or old enough.
// Called with commitMu held.
func (l *Log) rotateIfDue(more int64, now time.Time) {
	if l.seg.size == 0 {
		return
	}
	if l.seg.size+more <= l.o.SegmentBytes && now.Sub(l.seg.opened) < l.o.SegmentAge {
		return
	}
	if now.Before(l.noRotate) && l.noRotate.Sub(now) <= rotateRetry {
		return
	}
	l.rotate()
}

// rotate begins the next segment. If it cannot be made the log goes on in the
// old one. Nothing is written to a segment once its successor exists, which is
// what readers rely on. Called with commitMu held.
func (l *Log) rotate() bool {
	if l.seg.size == 0 {
		return true
	}
	next, n, err := l.create(l.seg.n + 1)
	if err != nil {
		l.logger.Error("segment cannot be made; going on in the old one", "error", err)
		l.noRotate = l.o.Now().Add(rotateRetry)
		return false
	}
	l.retire()
	l.known = append(l.known, l.seg.n)
	l.seg = segment{f: next, n: n, opened: l.o.Now()}
	l.stats.rotated.Add(1)
	l.wakeUp()
	return true
}

// rotateAlways is rotate that leaves an empty segment as well.
func (l *Log) rotateAlways() bool {
	size := l.seg.size
	l.seg.size = max(size, 1)
	if l.rotate() {
		return true
	}
	l.seg.size = size
	return false
}

// retire puts the open segment on the list of those that the background
// goroutine syncs and closes.
func (l *Log) retire() {
	if l.o.Sync == SyncNever {
		l.seg.f.Close()
		return
	}
	l.retired = append(l.retired, l.seg.f)
}

// closeRetired gives up the files that wait. Called with commitMu held.
func (l *Log) closeRetired() {
	for _, f := range l.retired {
		f.Close()
	}
	l.retired = nil
}

// create makes the first segment from n on whose name is free.
func (l *Log) create(n uint64) (file, uint64, error) {
	for ; ; n++ {
		f, err := l.open(l.path(n), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if l.o.Sync != SyncNever {
			if err := syncDir(l.o.Dir); err != nil {
				l.logger.Warn("directory not synced", "error", err)
			}
		}
		return f, n, nil
	}
}

func (l *Log) path(n uint64) string { return filepath.Join(l.o.Dir, segmentName(n)) }

// syncAll makes everything that was written survive a power cut. Called with
// commitMu held.
func (l *Log) syncAll() error {
	for len(l.retired) > 0 {
		if err := l.sync(l.retired[0]); err != nil {
			return err
		}
		l.retired[0].Close()
		l.retired = l.retired[1:]
	}
	if l.seg.dirty {
		if err := l.sync(l.seg.f); err != nil {
			return err
		}
		l.seg.dirty = false
	}
	return nil
}

// sync is one fsync, counted.
func (l *Log) sync(f file) error {
	start := time.Now()
	err := f.Sync()
	l.stats.syncs.Add(1)
	l.stats.syncNS.Add(int64(time.Since(start)))
	if err != nil {
		return fmt.Errorf("fsync: %w", err)
	}
	return nil
}
