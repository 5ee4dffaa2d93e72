package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the wait between two attempts to write again.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// fault is why the log cannot be written, and what was refused for it.
type fault struct {
	set atomic.Pointer[error] // wraps ErrUnavailable; nil while all is well

	mu      sync.Mutex
	since   time.Time
	lastTry time.Time // of a refused caller
	refused uint64
	total   uint64
	resync  bool // an fsync failed: what the segment holds is in doubt
	barred  bool // the open segment takes nothing; another one may
}

// current returns the error that callers get, or nil.
func (f *fault) current() error {
	if p := f.set.Load(); p != nil {
		return *p
	}
	return nil
}

// refuse is current for one caller, who is counted if refused.
func (f *fault) refuse(now func() time.Time) error {
	if f.set.Load() == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.current()
	if err != nil {
		f.add(1, now())
	}
	return err
}

// count counts n refused callers.
func (f *fault) count(n int, now time.Time) {
	if n <= 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(n, now)
}

func (f *fault) add(n int, now time.Time) {
	f.refused += uint64(n)
	f.total += uint64(n)
	f.lastTry = now
}

// again puts back what take has returned and nobody could be told of.
func (f *fault) again(n uint64) {
	f.mu.Lock()
	f.refused += n
	f.mu.Unlock()
}

// refusals returns how many have been refused so far.
func (f *fault) refusals() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// begin sets the fault unless there is one already, and reports whether it is
// new.
func (f *fault) begin(cause error, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.set.Load() != nil {
		return false
	}
	err := fmt.Errorf("%w: %w", ErrUnavailable, cause)
	f.set.Store(&err)
	f.since, f.lastTry = now, now
	return true
}

// take returns what was refused so far and starts to count anew. With clear it
// also ends the fault.
func (f *fault) take(clear bool) (n uint64, since, last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, f.refused = f.refused, 0
	if clear {
		f.set.Store(nil)
		f.resync, f.barred = false, false
	}
	return n, f.since, f.lastTry
}

// fail makes the log unavailable. Called with commitMu held.
func (l *Log) fail(cause error) {
	if bars(cause) {
		l.fault.bar()
	}
	if !l.fault.begin(cause, l.now()) {
		return
	}
	l.stats.faults.Add(1)
	l.logger.Error("audit log cannot be written; traffic is refused until it can", "dir", l.o.Dir, "error", cause)
	l.wakeUp()
}

// cutBack removes what a failed write left after the last whole line. If that
// fails too, retry does it later. Called with commitMu held.
func (l *Log) cutBack() {
	if err := l.seg.f.Truncate(l.seg.size); err != nil {
		l.logger.Warn("partial line not cut off yet", "error", err)
	}
}

// retry tries to end the fault by writing the event that tells of it, and
// reports whether it did.
func (l *Log) retry() bool {
	l.commitMu.Lock()
	defer l.commitMu.Unlock()
	if l.fault.current() == nil {
		return true
	}
	if err := l.mend(); err != nil {
		l.logger.Debug("audit log still unavailable", "error", err)
		return false
	}
	if !l.payOwed() || !l.tellGap(l.fault.take(false)) {
		return false
	}
	if l.o.Sync == SyncAlways {
		if err := l.syncAll(); err != nil {
			return false
		}
	}
	n, since, last := l.fault.take(true)
	if n > 0 && !l.tellGap(n, since, last) {
		return false // note has begun a new fault
	}
	l.logger.Info("audit log can be written again", "dir", l.o.Dir)
	return true
}

// mend brings the open segment into a state in which it can be appended to:
// under its name, whole lines only, or a new one if the old is in doubt.
func (l *Log) mend() error {
	if err := l.keepDir(); err != nil {
		return err
	}
	if l.fault.inDoubt() {
		l.closeRetired()
		next := l.rotate
		if !l.isNamed() {
			next = l.rotateAlways
		}
		if !next() {
			return errors.New("no new segment")
		}
		l.abandon()
		return nil
	}
	size, named, err := l.seg.f.Look()
	if err == nil && size > l.seg.size {
		err = l.seg.f.Truncate(l.seg.size)
	}
	switch {
	case err != nil:
	case !named:
		err = l.mendDeleted()
	case !l.isNamed():
		return l.mendMoved()
	}
	if err == nil && l.fault.isBarred() && l.rotate() { // if there is no new one either, the old one is tried again
		l.abandon()
	}
	return err
}

// mendDeleted writes the open segment again. If its name is another's, the next
// mend begins a new one.
func (l *Log) mendDeleted() error {
	err := l.rewrite(l.seg.size)
	switch {
	case errors.Is(err, fs.ErrExist):
		l.fault.doubt()
	case err == nil:
		l.owed = append(l.owed, l.restored())
	}
	return err
}

// mendMoved goes on in the next segment. The open one has another name, or
// another disk has come into the place of its own, which may have been full.
func (l *Log) mendMoved() error {
	n, size := l.seg.n, l.seg.size
	if !l.rotateAlways() {
		return errors.New("no new segment")
	}
	l.logger.Error(messageMoved, "segment", segmentName(n))
	l.abandon()
	l.quiet.doubt()
	l.forget([]uint64{n}) // it is told of here, once
	l.owed = append(l.owed, &Event{
		Severity: High, Message: messageMoved,
		Note: &Note{Action: ActionMoved, Segment: segmentName(n), Bytes: size},
	})
	return nil
}

// abandon gives up the files that wait for their fsync, of which one takes
// nothing any more.
func (l *Log) abandon() {
	for _, f := range l.retired {
		if err := l.sync(f); err != nil {
			l.logger.Error("what was last written before the fault may not survive a power cut", "error", err)
		}
	}
	l.closeRetired()
}

// bars reports whether an error of a write may be one of this file alone: of a
// bad place on the disk, or of a file system that has been made read-only and in
// whose place there may be another.
func bars(err error) bool { return errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) }

// bar notes that the open segment takes nothing.
func (f *fault) bar() {
	f.mu.Lock()
	f.barred = true
	f.mu.Unlock()
}

func (f *fault) isBarred() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.barred
}

// inDoubt reports whether an fsync has failed since the fault began.
func (f *fault) inDoubt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resync
}

// doubt notes that an fsync has failed.
func (f *fault) doubt() {
	f.mu.Lock()
	f.resync = true
	f.mu.Unlock()
}

// tellGap writes the event of a gap in which n attempts were refused. If it
// cannot be written they are counted again.
func (l *Log) tellGap(n uint64, since, last time.Time) bool {
	cause := "cause unknown"
	if err := l.fault.current(); err != nil {
		cause = err.Error()
	}
	err := l.note(&Event{
		Severity: High, Message: cause, Note: &Note{Action: ActionGap},
		Count: n, FirstSeen: &since, LastSeen: &last,
	})
	if err != nil {
		l.fault.again(n)
		return false
	}
	return true
}

// payOwed writes the events about the log that could not be written when they
// were due. Called with commitMu held.
func (l *Log) payOwed() bool {
	for len(l.owed) > 0 {
		if err := l.note(l.owed[0]); err != nil {
			return false
		}
		l.owed = l.owed[1:]
	}
	return true
}
