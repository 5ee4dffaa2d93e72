package audit

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// retain removes the oldest closed segments that are too old or too many.
// Before it does, it writes an anchor: the place in the chain at which the log
// now begins, so that it still verifies.
func (l *Log) retain() {
	l.retaining.Lock() // what another run removes meanwhile would look like a hole
	defer l.retaining.Unlock()
	l.commitMu.Lock()
	open := l.seg.n
	l.commitMu.Unlock()
	now := l.ageTime()
	list, err := segments(l.o.Dir)
	if err != nil {
		l.logger.Warn("retention: segments not listed", "error", err)
		return
	}
	gone, bytes := l.expired(list, open, now)
	if len(gone) == 0 || len(gone) == len(list) || !l.begin(list[len(gone)], gone, bytes) {
		return
	}
	for _, n := range gone { // oldest first: what is left is always the end of the log
		if err := os.Remove(l.path(n)); err != nil && !os.IsNotExist(err) {
			l.logger.Warn("retention: segment not removed", "segment", segmentName(n), "error", err)
			return
		}
		l.stats.removed.Add(1)
		torn, _ := filepath.Glob(l.path(n) + ".torn-*")
		for _, side := range torn {
			os.Remove(side)
		}
	}
}

// begin writes the anchor at the segment first, signs it and makes it durable,
// before anything is removed.
func (l *Log) begin(first uint64, gone []uint64, bytes int64) bool {
	l.commitMu.Lock()
	defer l.commitMu.Unlock()
	if l.fault.current() != nil || l.anchor(first, len(gone), bytes) != nil {
		return false
	}
	l.checkpointDue(true)
	if l.fault.current() != nil {
		return false
	}
	l.forget(gone)
	if l.o.Sync == SyncNever {
		return true
	}
	err := l.syncAll()
	if err != nil {
		l.fault.doubt()
		l.fail(err)
	}
	return err == nil
}

// expired returns the segments before the open one that retention removes, and
// their bytes.
func (l *Log) expired(list []uint64, open uint64, now time.Time) (gone []uint64, bytes int64) {
	var total int64
	size := make(map[uint64]int64, len(list))
	for _, n := range list {
		if info, err := os.Lstat(l.path(n)); err == nil {
			size[n] = info.Size()
			total += info.Size()
		}
	}
	horizon := now.Add(-l.o.RetainAge)
	for _, n := range list {
		if n >= open {
			break
		}
		if total <= l.o.RetainBytes {
			last, err := lastRecordOf(l.open, l.path(n))
			if err != nil || !last.found || !last.head.time.Before(horizon) {
				break
			}
		}
		gone = append(gone, n)
		bytes += size[n]
		total -= size[n]
	}
	return gone, bytes
}

// anchor writes the event that the log begins with the segment first.
func (l *Log) anchor(first uint64, removed int, bytes int64) error {
	seq, prev := l.end.seq+1, l.end.hash // of the anchor itself, if first is empty
	if first != l.seg.n || l.seg.size > 0 {
		f, err := l.open(l.path(first), os.O_RDONLY)
		if err != nil {
			return err
		}
		defer f.Close()
		h, err := firstRecord(f)
		if err != nil {
			l.logger.Warn("retention: stopped", "segment", segmentName(first), "error", err)
			return err
		}
		seq, prev = h.seq, h.prev
	}
	return l.note(&Event{
		Severity: Info,
		Message:  fmt.Sprintf("retention removed %s; the log begins with record %d", several(removed, "segment"), seq),
		Note: &Note{
			Action: ActionAnchor, Segment: segmentName(first), Segments: removed, Bytes: bytes,
			Seq: seq, Hash: hex.EncodeToString(prev[:]),
		},
	})
}
