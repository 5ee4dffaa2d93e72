package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// clockSlack is the backward step of the wall clock that is hidden by
// repeating the time of the record before. A larger one is an event, and a
// segment of its own, so that within a segment time runs forward.
const clockSlack = time.Second

// commit writes the records of g and sets the error of each. Called with
// commitMu held.
func (l *Log) commit(g *group) {
	if l.shut {
		refuseAll(g.entries, ErrClosed)
		return
	}
	now := l.o.Now()
	if l.fault.current() == nil {
		l.checkSegment(now)
		l.checkClock(now)
		l.rotateIfDue(int64(g.size), now)
	}
	if err := l.fault.current(); err != nil {
		l.fault.count(len(g.entries), now)
		refuseAll(g.entries, err)
		return
	}
	n, err := l.append(g.entries, now)
	if err == nil && l.o.Sync == SyncAlways {
		if err = l.syncAll(); err != nil {
			n = 0 // written, but not as safe as was promised
			l.fault.doubt()
		}
	}
	if err != nil {
		l.fail(err)
		l.fault.count(len(g.entries)-n, l.o.Now())
		refuseAll(g.entries[n:], l.fault.current())
	}
}

func refuseAll(entries []*entry, err error) {
	for _, x := range entries {
		x.err = err
	}
}

// append writes one line per entry and moves the end of the chain. It returns
// how many lines are whole in the file. What was written of the next one is
// cut off again, so that the file ends with a newline. Called with commitMu
// held; now is the time of those that are not late.
func (l *Log) append(entries []*entry, now time.Time) (int, error) {
	b, end := l.buf[:0], l.end
	for _, x := range entries {
		at := now
		if x.event == nil {
			at = l.lateTime(x, now)
		}
		at = l.stamp(at)
		start := len(b)
		b = l.appendPlace(b, x.event, at, end)
		b = append(b, x.body...)
		end = position{seq: end.seq + 1, hash: sha256.Sum256(b[start:])}
		b = append(b, '\n')
		x.size = len(b) - start
	}
	l.buf = b
	if cap(b) > maxGroupBytes+maxGroup*headRoom {
		l.buf = nil
	}
	n, err := l.seg.f.Write(b)
	if err == nil && n < len(b) {
		err = fmt.Errorf("wrote %d of %d bytes", n, len(b))
	}
	if n > 0 {
		l.seg.dirty = true
	}
	if err == nil {
		l.quiet.note(entries, place{n: l.seg.n, off: l.seg.size})
		l.advance(len(entries), len(b), end)
		return len(entries), nil
	}
	l.quiet.doubt()
	return l.keepWhole(b, max(n, 0)), err
}

// appendPlace appends the place of the record that follows the last one. Its
// event, if somebody has it, learns of it.
func (l *Log) appendPlace(dst []byte, e *Event, at time.Time, last position) []byte {
	var b [idLen + 2*len(last.hash)]byte
	id, prev := b[:idLen], b[idLen:]
	appendID(id[:0], at)
	hex.Encode(prev, last.hash[:])
	if e != nil {
		text := string(b[:]) // in one piece of memory
		e.Schema, e.Instance, e.Time, e.Seq = Schema, l.instance, at, last.seq+1
		e.ID, e.Prev = text[:idLen], text[idLen:]
	}
	return appendPlace(dst, at, id, last.seq+1, l.instance, prev)
}

// keepWhole is the end of a write that stopped after n bytes of b: the whole
// lines stay and count, the rest is cut off. It returns how many stay.
func (l *Log) keepWhole(b []byte, n int) int {
	whole := bytes.LastIndexByte(b[:n], '\n') + 1
	lines := bytes.Count(b[:whole], []byte{'\n'})
	if lines > 0 {
		line := b[bytes.LastIndexByte(b[:whole-1], '\n')+1 : whole-1]
		l.advance(lines, whole, position{seq: l.end.seq + uint64(lines), hash: sha256.Sum256(line)})
	}
	if n > whole {
		l.cutBack()
	}
	return lines
}

// advance counts lines of size bytes that are in the file now.
func (l *Log) advance(lines, size int, end position) {
	l.end = end
	l.seg.size += int64(size)
	l.stats.records.Add(uint64(lines))
	l.stats.bytes.Add(uint64(size))
	l.stats.groups.Add(1)
	l.stats.seq.Store(end.seq)
}

// stamp returns the time of the next record, which is made at the time now or
// was then.
func (l *Log) stamp(now time.Time) time.Time {
	now = now.UTC().Round(0)
	if now.Before(l.last) && l.last.Sub(now) < clockSlack {
		return l.last
	}
	l.last = now
	return now
}

// lateTime is when a late record was made, if the clock ran forward since.
func (l *Log) lateTime(x *entry, now time.Time) time.Time {
	switch {
	case now.Before(x.at):
		return now
	case x.at.Before(l.last):
		return l.last
	}
	return x.at
}

// checkClock notes that the wall clock went back. Called with commitMu held.
func (l *Log) checkClock(now time.Time) {
	back := l.last.Sub(now)
	if back < clockSlack {
		return
	}
	l.logger.Warn("clock went back", "by", back)
	l.rotate()
	l.note(&Event{
		Severity: Medium, Message: fmt.Sprintf("the wall clock went back by %s", back.Round(time.Millisecond)),
		Note: &Note{Action: ActionClock},
	})
}

// note appends an event about the log itself. Called with commitMu held.
func (l *Log) note(e *Event) error {
	e.Kind, e.Phase = KindAudit, PhaseEvent
	n, err := l.append([]*entry{l.entry(e)}, l.o.Now())
	if n == 1 {
		return nil
	}
	if err != nil {
		l.fail(err)
	}
	return err
}
