package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"
)

// recover finds the end of the log, cuts off what is no record after it and
// opens the last segment for more. Nobody else has the log yet.
func (l *Log) recover() error {
	list, err := segments(l.o.Dir)
	if err != nil {
		return err
	}
	used, err := l.usedSegment()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		f, n, err := l.create(used + 1)
		if err != nil {
			return err
		}
		l.seg = segment{f: f, n: n, opened: l.o.Now()}
		return l.recoverState()
	}
	n := list[len(list)-1]
	l.known = list[:len(list)-1]
	f, err := l.open(l.path(n), os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	l.seg = segment{f: f, n: n, opened: l.o.Now()}
	if err := l.recoverEnd(list); err != nil {
		f.Close()
		return err
	}
	if err := l.recoverState(); err != nil {
		f.Close()
		return err
	}
	if used <= n {
		return nil
	}
	// The segments up to used are gone. Readers may have been in them, and wait
	// for a higher one.
	next, after, err := l.create(used + 1)
	if err != nil {
		f.Close()
		return err
	}
	l.retire()
	l.known = append(l.known, n)
	l.seg = segment{f: next, n: after, opened: l.o.Now()}
	return nil
}

// recoverEnd takes the end of the chain from the last record there is, and
// cuts the last segment after it.
func (l *Log) recoverEnd(list []uint64) error {
	info, err := l.seg.f.Stat()
	if err != nil {
		return err
	}
	last, err := lastRecord(l.seg.f, info.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", l.path(l.seg.n), err)
	}
	l.seg.size = last.end
	if cut := info.Size() - last.end; cut > 0 {
		if err := l.cutTorn(last.end, cut); err != nil {
			return fmt.Errorf("%s: cut off torn end: %w", l.path(l.seg.n), err)
		}
	}
	for i := len(list) - 2; i >= 0 && !last.found; i-- {
		if last, err = lastRecordOf(l.open, l.path(list[i])); err != nil {
			return err
		}
	}
	if last.found {
		l.end = position{seq: last.head.seq, hash: last.hash}
		l.last = last.head.time
		l.stats.seq.Store(l.end.seq)
	}
	if first, err := firstRecord(l.seg.f); err == nil {
		l.seg.opened = first.time
	}
	for _, e := range l.owed {
		e.Note.Segment = segmentName(l.seg.n)
	}
	return nil
}

// cutTorn removes the n bytes from off to the end of the open segment. A line
// that was merely not finished belongs to no attempt that went on; anything
// else is kept in a file beside the segment.
func (l *Log) cutTorn(off, n int64) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(l.seg.f, off, n)); err != nil {
		return err
	}
	torn := make([]byte, min(n, maxRecord+1))
	if _, err := l.seg.f.ReadAt(torn, off); err != nil && err != io.EOF {
		return err
	}
	message := "the last line was not finished and was cut off"
	if n > maxRecord || bytes.ContainsAny(torn, "\n\x00") {
		side := fmt.Sprintf("%s.torn-%d", l.path(l.seg.n), off)
		if err := l.keepTorn(side, off, n); err != nil {
			return err
		}
		message = "what followed the last record was no record and was moved to a file beside the segment"
	}
	if err := l.seg.f.Truncate(off); err != nil {
		return err
	}
	l.seg.dirty = true
	l.logger.Warn("torn end cut off", "segment", segmentName(l.seg.n), "offset", off, "bytes", n)
	l.owed = append(l.owed, &Event{
		Severity: Low, Message: message,
		Note: &Note{Action: ActionTorn, Offset: off, Bytes: n, Hash: hex.EncodeToString(sum.Sum(nil))},
	})
	return nil
}

// keepTorn copies n bytes at off of the open segment to the file at path.
func (l *Log) keepTorn(path string, off, n int64) error {
	f, err := l.open(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = io.Copy(writerOf{f}, io.NewSectionReader(l.seg.f, off, n))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// writerOf hides the other methods of a file from io.Copy.
type writerOf struct{ w io.Writer }

func (w writerOf) Write(p []byte) (int, error) { return w.w.Write(p) }

// stateBucket holds, by directory, the end of the log as it was last seen.
const stateBucket = "audit_end"

// recoverState compares the end that was found with the one remembered. If
// records are gone the log goes on from the remembered end, so that no
// sequence number is used twice and the hole shows.
func (l *Log) recoverState() error {
	if l.o.State == nil {
		return nil
	}
	v, err := l.o.State.Get(stateBucket, []byte(l.o.Dir))
	if err != nil {
		return err
	}
	if len(v) != 8+32 {
		return nil
	}
	saved := position{seq: binary.BigEndian.Uint64(v), hash: [32]byte(v[8:])}
	if saved.seq <= l.end.seq {
		return nil
	}
	l.logger.Error("records are gone from the end of the log", "last", l.end.seq, "want", saved.seq)
	l.owed = append(l.owed, &Event{
		Severity: Critical,
		Message:  fmt.Sprintf("records %d to %d are gone from the end of the log", l.end.seq+1, saved.seq),
		Note:     &Note{Action: ActionTruncated, Seq: saved.seq, Hash: hex.EncodeToString(saved.hash[:])},
		Count:    saved.seq - l.end.seq,
	})
	l.end = saved
	return nil
}

// saveEnd remembers the end of the log, and the time that retention believes.
// Called with commitMu held.
func (l *Log) saveEnd() error {
	if l.o.State == nil || l.end.seq == 0 {
		return nil
	}
	v := binary.BigEndian.AppendUint64(nil, l.end.seq)
	return l.o.State.PutAll(stateBucket, map[string][]byte{
		l.o.Dir:                  append(v, l.end.hash[:]...),
		string(paceKey(l.o.Dir)): l.paceMark(),
	})
}

// usedKey is where stateBucket has the highest number of a segment that a log
// has had.
func usedKey(dir string) []byte { return []byte(dir + "\x00segment") }

// usedSegment is the highest number that a segment has had, as far as it is
// remembered. A segment of it or below that is gone is not made again.
func (l *Log) usedSegment() (uint64, error) {
	if l.o.State == nil {
		return 0, nil
	}
	v, err := l.o.State.Get(stateBucket, usedKey(l.o.Dir))
	if err != nil || len(v) != 8 {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

// saveSegment remembers the number of the open segment.
func (l *Log) saveSegment() {
	if l.o.State == nil {
		return
	}
	l.commitMu.Lock()
	n, saved := l.seg.n, l.saved
	l.commitMu.Unlock()
	if n == saved {
		return
	}
	if err := l.o.State.Put(stateBucket, usedKey(l.o.Dir), key(n)); err != nil {
		l.logger.Warn("number of the segment not saved", "error", err)
		return
	}
	l.commitMu.Lock()
	l.saved = n
	l.commitMu.Unlock()
}

// last is the last record of a segment.
type last struct {
	found bool
	head  head
	hash  [32]byte
	end   int64 // offset after its newline; 0 if there is none
}

// lastRecordOf is lastRecord of the file at path.
func lastRecordOf(open opener, path string) (last, error) {
	f, err := open(path, os.O_RDONLY)
	if err != nil {
		return last{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return last{}, err
	}
	return lastRecord(f, info.Size())
}

// tailBlock is read at a time when a segment is read from its end.
const tailBlock = 64 << 10

// lastRecord looks for the last whole record in the first size bytes of r,
// from the end backwards.
func lastRecord(r io.ReaderAt, size int64) (last, error) {
	var tail []byte // bytes of the file from start on, up to a line's end
	start := size
	for start > 0 {
		n := min(start, tailBlock)
		start -= n
		block := make([]byte, n, n+int64(len(tail)))
		if _, err := r.ReadAt(block, start); err != nil && err != io.EOF {
			return last{}, err
		}
		tail = append(block, tail...)
		for {
			nl := bytes.LastIndexByte(tail, '\n')
			if nl < 0 {
				break
			}
			from := bytes.LastIndexByte(tail[:nl], '\n') + 1
			if from == 0 && start > 0 {
				tail = tail[:nl+1]
				break
			}
			line := tail[from:nl]
			if h, ok := whole(line); ok {
				return last{found: true, head: h, hash: sha256.Sum256(line), end: start + int64(nl) + 1}, nil
			}
			tail = tail[:from]
		}
		if len(tail) > 1<<20 { // no line is that long
			tail = tail[:0]
		}
	}
	return last{}, nil
}

// firstRecord reads the head of the first line of r.
func firstRecord(r io.ReaderAt) (head, error) {
	b := make([]byte, maxRecord+1)
	n, err := r.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return head{}, err
	}
	line, _, ok := bytes.Cut(b[:n], []byte{'\n'})
	if !ok {
		return head{}, fmt.Errorf("no line")
	}
	h, ok := parseHead(line)
	if !ok {
		return head{}, fmt.Errorf("first line is no record")
	}
	return h, nil
}

// now is the wall clock without the monotonic reading.
func (l *Log) now() time.Time { return l.o.Now().UTC().Round(0) }
