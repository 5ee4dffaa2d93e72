package audit

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// groupBlocks is how many blocks of one segment have their terms written
// together at the most: one bit each.
const groupBlocks = 64

// entryBytes is the length of what is kept of a block: its end, and its first
// and last time.
const entryBytes = 24

// blockIndex indexes groups of blocks. What it holds is used again for the next
// one: neighbours have most terms in common.
type blockIndex struct {
	lines  blockReader
	terms  termCounts
	blocks []byte // entries of the group's blocks
	bad    []byte // where lines of this segment are no records: see addStretch
}

// group indexes the blocks from off on, at most so many of them, and returns
// where they end and how many they were. There are none if no whole line is
// left.
func (x *blockIndex) group(r io.ReaderAt, off, size int64, most int) (end int64, n int, err error) {
	x.blocks = x.blocks[:0]
	for end = off; n < min(most, groupBlocks); n++ {
		lines, err := x.lines.read(r, end, size)
		if err != nil {
			return off, 0, err
		}
		if len(lines) == 0 {
			break
		}
		end = x.block(lines, end)
		x.terms.mark(n)
	}
	return end, n, nil
}

// block takes the terms and times of lines that begin at off, looks which of
// them are no records, and returns their end. Lines are many: it is a hot path.
func (x *blockIndex) block(lines []byte, off int64) int64 {
	var first, last []byte // times, as they are written: so they have the same order
	for line := range bytes.Lines(lines) {
		from := off
		off += int64(len(line))
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if !sound(line) {
			if _, err := DecodeLine(line); err != nil {
				x.bad = addStretch(x.bad, from, off)
			}
			if _, ok := lineTime(line); !ok {
				continue
			}
		}
		at := line[len(headTime) : len(headTime)+timeLen]
		if first == nil || bytes.Compare(at, first) < 0 {
			first = at
		}
		if bytes.Compare(at, last) > 0 {
			last = at
		}
		x.terms.line(line)
	}
	var from, to time.Time
	if first != nil {
		from, _ = parseStamp(first)
		to, _ = parseStamp(last)
	}
	for _, v := range []int64{off, from.UnixNano(), to.UnixNano()} {
		x.blocks = binary.BigEndian.AppendUint64(x.blocks, uint64(v))
	}
	return off
}

// put writes the group that begins at off.
func (x *blockIndex) put(b *bbolt.Bucket, off int64) error {
	var terms []string
	for t, c := range x.terms.counts {
		if c.blocks == 0 {
			delete(x.terms.counts, t) // what a group does not have is forgotten
			continue
		}
		terms = append(terms, t)
	}
	slices.Sort(terms) // so that the pages of the file are written one after the other
	key, values := []byte(nil), make([]byte, 0, 8*len(terms))
	for _, t := range terms {
		c := x.terms.counts[t]
		key = binary.BigEndian.AppendUint64(append(append(key[:0], 't'), t...), uint64(off))
		values = binary.BigEndian.AppendUint64(values, c.blocks)
		c.blocks = 0
		if err := b.Put(key, values[len(values)-8:]); err != nil {
			return err
		}
	}
	return b.Put(binary.BigEndian.AppendUint64([]byte{'b'}, uint64(off)), bytes.Clone(x.blocks))
}

// blockReader reads a segment in blocks.
type blockReader struct {
	buf []byte
	at  int64 // of the first byte that is held
	has []byte
}

// readAhead is how much of a segment is read with one call.
const readAhead = 1 << 20

// read returns at least blockBytes of whole lines at off, or what is left of a
// segment of that size. It is nothing if no line ends there. What it returns is
// the caller's until the next call.
func (x *blockReader) read(r io.ReaderAt, off, size int64) ([]byte, error) {
	const most = blockBytes + 2*maxRecord
	if skip := off - x.at; skip >= 0 && skip <= int64(len(x.has)) {
		x.has = x.has[skip:]
	} else {
		x.has = nil
	}
	x.at = off
	if len(x.has) < most && int64(len(x.has)) < size-off {
		if x.buf == nil {
			x.buf = make([]byte, readAhead)
		}
		kept := copy(x.buf, x.has)
		n, err := r.ReadAt(x.buf[kept:min(int64(len(x.buf)), size-off)], off+int64(kept))
		if err != nil && err != io.EOF {
			return nil, err
		}
		x.has = x.buf[:kept+n]
	}
	b := x.has[:min(len(x.has), most)]
	if len(b) > blockBytes {
		if nl := bytes.IndexByte(b[blockBytes:], '\n'); nl >= 0 {
			return b[:blockBytes+nl+1], nil
		}
	}
	return b[:bytes.LastIndexByte(b, '\n')+1], nil
}
