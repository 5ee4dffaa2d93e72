package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// nameCheck is how often the name of the open segment is compared with the
// file. Deletion and a changed size are noticed at every write.
const nameCheck = time.Second

// checkSegment notices what others did to the open segment: deleted, it is
// written again from the open descriptor; moved away, cut or added to, the log
// goes on in the next one. Called with commitMu held.
func (l *Log) checkSegment(now time.Time) {
	size, named, err := l.seg.f.Look()
	if err != nil {
		return // the write will tell
	}
	if !named {
		l.restore(size)
		return
	}
	if size != l.seg.size {
		l.leave(ActionTampered, Critical, fmt.Sprintf("the segment was changed by another hand: it has %d bytes, not %d", size, l.seg.size))
		return
	}
	if since := now.Sub(l.lookedAt); since >= 0 && since < nameCheck {
		return
	}
	l.lookedAt = now
	if !l.isNamed() {
		l.leave(ActionMoved, High, messageMoved)
	}
}

// messageMoved is what is said of a segment that is not under its name.
const messageMoved = "the segment was renamed or replaced by another hand"

// isNamed reports whether the open segment is what its name names.
func (l *Log) isNamed() bool {
	held, err := l.seg.f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(l.path(l.seg.n))
	return err == nil && os.SameFile(named, held)
}

// leave goes on in the next segment and says why.
func (l *Log) leave(action string, severity Severity, message string) {
	old, n := segmentName(l.seg.n), l.seg.n
	l.logger.Error(message, "segment", old)
	size := l.seg.size
	if !l.rotateAlways() {
		l.fault.doubt()
		l.fail(errors.New("the segment was changed and no new one can be made"))
		return
	}
	l.quiet.doubt() // what the other hand has written is between
	if action == ActionMoved {
		l.forget([]uint64{n}) // it is told of here, once
	}
	l.note(&Event{Severity: severity, Message: message, Note: &Note{Action: action, Segment: old, Bytes: size}})
}

// restore writes the deleted open segment again, from the descriptor that
// still has it.
func (l *Log) restore(size int64) {
	name := segmentName(l.seg.n)
	l.logger.Error("the open segment was deleted; writing it again", "segment", name)
	err := l.rewrite(size)
	switch {
	case errors.Is(err, fs.ErrExist):
		l.leave(ActionMoved, High, messageMoved)
	case err != nil:
		l.fail(err)
	default:
		l.note(l.restored())
	}
}

// restored is the event that rewrite owes.
func (l *Log) restored() *Event {
	return &Event{
		Severity: Critical, Message: "the open segment was deleted by another hand and was written again",
		Note: &Note{Action: ActionRestored, Segment: segmentName(l.seg.n), Bytes: l.seg.size},
	}
}

// rewrite gives the first size bytes of the deleted open segment its name
// again, in a new directory if that is gone as well.
func (l *Log) rewrite(size int64) error {
	err := l.keepDir()
	var f file
	if err == nil {
		f, err = l.copyAside(size)
	}
	if err == nil {
		err = os.Link(l.asidePath(), l.path(l.seg.n)) // whole or not at all, for readers
	}
	os.Remove(l.asidePath())
	if err != nil {
		if f != nil {
			f.Close()
		}
		return fmt.Errorf("deleted segment %s: write again: %w", segmentName(l.seg.n), err)
	}
	l.seg.f.Close()
	l.seg.f, l.seg.dirty, l.seg.size = f, true, size
	return nil
}

// keepDir makes the log's directory again if it is gone, and takes its lock if
// the one that is held is that of another.
func (l *Log) keepDir() error {
	held, err := l.lock.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(filepath.Join(l.o.Dir, lockName)); err == nil && os.SameFile(named, held) {
		return nil
	}
	if err := makeDir(l.o.Dir); err != nil {
		return err
	}
	lock, err := lockDir(l.o.Dir)
	if err != nil {
		return err
	}
	l.lock.Close()
	l.lock = lock
	l.logger.Warn("the log's directory is another one, and is used now", "dir", l.o.Dir)
	return nil
}

func (l *Log) asidePath() string { return filepath.Join(l.o.Dir, "restore.tmp") }

// copyAside copies the first size bytes of the open segment to a file that is
// no segment yet.
func (l *Log) copyAside(size int64) (file, error) {
	f, err := l.open(l.asidePath(), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(writerOf{f}, io.NewSectionReader(l.seg.f, 0, size))
	return f, err
}

// checkClosed notices closed segments that are gone. They cannot be brought
// back. Called with commitMu held.
func (l *Log) checkClosed() {
	list, err := segments(l.o.Dir)
	if err != nil {
		return
	}
	var gone []uint64
	l.known = slices.DeleteFunc(l.known, func(n uint64) bool {
		_, there := slices.BinarySearch(list, n)
		if !there {
			gone = append(gone, n)
		}
		return !there
	})
	for _, n := range gone {
		name := segmentName(n)
		l.logger.Error("a segment was removed by another hand", "segment", name)
		l.owed = append(l.owed, &Event{
			Severity: Critical, Message: "the segment was removed by another hand; its records are lost",
			Note: &Note{Action: ActionMissing, Segment: name},
		})
	}
	l.payOwed()
}

// forget takes segments that retention removes off the list of those that
// should be there. Called with commitMu held.
func (l *Log) forget(gone []uint64) {
	l.known = slices.DeleteFunc(l.known, func(n uint64) bool { return slices.Contains(gone, n) })
}
