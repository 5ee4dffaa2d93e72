package audit

import (
	"bytes"
	"encoding/binary"
	"io"
	"time"

	"go.etcd.io/bbolt"
)

// blockIndex indexes blocks. What it holds is used again for the next one:
// neighbours have most terms in common.
type blockIndex struct {
	buf   []byte
	terms termCounts
	key   []byte
}

// index indexes the block that begins at off and returns its end, which is off
// if there are not enough lines yet.
func (x *blockIndex) index(b *bbolt.Bucket, r io.ReaderAt, off, size int64, closed bool) (int64, error) {
	lines, err := x.read(r, off, size, closed)
	if err != nil || len(lines) == 0 {
		return off, err
	}
	var from, to time.Time
	for line := range bytes.Lines(lines) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		at, ok := lineTime(line)
		if !ok {
			continue
		}
		if from.IsZero() || at.Before(from) {
			from = at
		}
		if at.After(to) {
			to = at
		}
		x.terms.line(line)
	}
	end := off + int64(len(lines))
	if err := x.put(b, off); err != nil {
		return off, err
	}
	v := append(key(uint64(end)), key(uint64(from.UnixNano()))...)
	return end, b.Put(append([]byte{'b'}, key(uint64(off))...), append(v, key(uint64(to.UnixNano()))...))
}

// put writes the counts of the terms of the block at off. A term that the block
// does not have is forgotten.
func (x *blockIndex) put(b *bbolt.Bucket, off int64) error {
	x.terms.settle()
	for t, n := range x.terms.counts {
		if *n == 0 {
			delete(x.terms.counts, t)
			continue
		}
		x.key = binary.BigEndian.AppendUint64(append(append(x.key[:0], 't'), t...), uint64(off))
		if err := b.Put(x.key, binary.AppendUvarint(nil, *n)); err != nil {
			return err
		}
		*n = 0
	}
	return nil
}

// read reads at least blockBytes of whole lines at off, or what is left of a
// closed segment. It returns nothing if there is less, and what it returns is
// the caller's until the next call.
func (x *blockIndex) read(r io.ReaderAt, off, size int64, closed bool) ([]byte, error) {
	n := size - off
	if n <= 0 || (n < blockBytes && !closed) {
		return nil, nil
	}
	if x.buf == nil {
		x.buf = make([]byte, blockBytes+2*maxRecord)
	}
	buf := x.buf[:min(n, int64(len(x.buf)))]
	got, err := r.ReadAt(buf, off)
	if err != nil && err != io.EOF {
		return nil, err
	}
	buf = buf[:got]
	if got > blockBytes {
		if nl := bytes.IndexByte(buf[blockBytes:], '\n'); nl >= 0 {
			return buf[:blockBytes+nl+1], nil
		}
	}
	return buf[:bytes.LastIndexByte(buf, '\n')+1], nil
}
