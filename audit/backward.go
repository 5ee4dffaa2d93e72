package audit

import (
	"bytes"
	"context"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
)

// newest yields the last f.Limit matching records of a span, oldest first. It
// reads the files from their end and stops when it has enough.
func newest(ctx context.Context, s span, f Filter) iter.Seq[record] {
	return func(yield func(record) bool) {
		found, err := collectNewest(ctx, s, f)
		slices.Reverse(found)
		if err != nil && !yield(record{err: err}) {
			return
		}
		for _, r := range found {
			if !yield(r) {
				return
			}
		}
	}
}

// collectNewest is newest with the newest first.
func collectNewest(ctx context.Context, s span, f Filter) ([]record, error) {
	list, err := segments(s.dir)
	if err != nil {
		return nil, err
	}
	w := &backward{ctx: ctx, sieve: newSieve(f), lookup: newLookup(s.dir, f)}
	since := sinceSegment(s, f.Since)
	for _, n := range slices.Backward(list) {
		if n > s.end.n || n < since {
			continue
		}
		path := filepath.Join(s.dir, segmentName(n))
		end := int64(-1)
		if n == s.end.n {
			end = s.end.off
		}
		if err := w.segment(n, path, end); err != nil {
			return w.found, err
		}
		if len(w.found) >= f.Limit {
			break
		}
	}
	return w.found, nil
}

// backward reads lines from the end of files.
type backward struct {
	ctx    context.Context
	sieve  *sieve
	lookup *lookup
	found  []record
}

// segment reads the segment at path from end, or its own end if that is
// negative. A segment that retention has removed is empty.
func (w *backward) segment(n uint64, path string, end int64) error {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if end < 0 {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if end, err = lastNewline(f, info.Size()); err != nil {
			return err
		}
	}
	all := w.sieve
	w.sieve = w.lookup.sieve(all, n, end)
	defer func() { w.sieve = all }()
	for _, r := range slices.Backward(w.lookup.in(n, end)) {
		if done, err := w.lines(f, path, r); done || err != nil {
			return err
		}
	}
	return nil
}

// lines takes the lines of a region, the last first, and reports whether there
// is no need to read on in this segment. The block that is read may
// begin in the middle of a line, whose end waits for the next one.
func (w *backward) lines(r io.ReaderAt, path string, part region) (bool, error) {
	var rest []byte // the beginning of the block read last, up to its first newline
	for end := part.to; end > part.from; {
		if err := w.ctx.Err(); err != nil {
			return false, err
		}
		n := min(end-part.from, readBlock)
		block := make([]byte, n, int(n)+len(rest))
		if _, err := r.ReadAt(block, end-n); err != nil && err != io.EOF {
			return false, err
		}
		end -= n
		block = append(block, rest...)
		from := 0
		if end > part.from {
			from = bytes.IndexByte(block, '\n') + 1
			if from == 0 {
				if len(block) > maxLine {
					block = nil // it is reported when its beginning is reached
				}
				rest = block
				continue
			}
		}
		rest = block[:from]
		if w.block(block[from:], path, end+int64(from)) {
			return true, nil
		}
	}
	return false, nil
}

// block takes the whole lines of b, the last first, and reports whether there
// is no need to read on.
func (w *backward) block(b []byte, path string, off int64) bool {
	for len(b) > 0 {
		from := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
		line := bytes.TrimSuffix(b[from:], []byte{'\n'})
		b = b[:from]
		h, ok := parseHead(line)
		if ok && !w.sieve.f.Since.IsZero() && h.time.Before(w.sieve.f.Since.Add(-clockSlack)) {
			return true // and so is all before it in this segment
		}
		if !w.sieve.pass(line) {
			continue
		}
		e, err := DecodeLine(line)
		switch {
		case err != nil:
			w.found = append(w.found, record{err: &LineError{File: path, Offset: off + int64(from), Err: err}, time: h.time})
		case w.sieve.f.Match(e):
			w.found = append(w.found, record{event: e, time: e.Time})
		}
		if len(w.found) >= w.sieve.f.Limit {
			return true
		}
	}
	return false
}
