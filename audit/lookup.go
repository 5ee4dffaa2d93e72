package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// region is a stretch of a segment that has to be read.
type region struct {
	from, to int64
}

// lookup tells readers where in the segments of one log to look. A nil one
// knows nothing.
type lookup struct {
	regions map[uint64][]region // of each segment that is known to its end: candidates and damaged lines, in order
	upto    map[uint64]int64    // how far segments are indexed
	clean   map[uint64]bool     // segments that are known to have no damaged line
}

// lookupWait is how long a reader waits for the index before it does without.
const lookupWait = 500 * time.Millisecond

// newLookup asks the index of the log in dir for what f may take. It is nil if
// there is no index, or if every line has to be decoded anyway.
func newLookup(dir string, f Filter) *lookup {
	terms := f.terms()
	path := filepath.Join(dir, indexName)
	if _, err := os.Stat(path); err != nil || len(terms) == 0 && newSieve(f).takesAll() {
		return nil
	}
	l := &lookup{regions: make(map[uint64][]region), upto: make(map[uint64]int64), clean: make(map[uint64]bool)}
	err := withBolt(path, bbolt.Options{ReadOnly: true, Timeout: lookupWait}, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			if err := l.take(tx.Bucket([]byte(formerVersion)), dir, terms, f, formerCandidates); err != nil {
				return err
			}
			return l.take(tx.Bucket([]byte(indexVersion)), dir, terms, f, candidates)
		})
	})
	if err != nil {
		return nil
	}
	return l
}

// take takes what a bucket of buckets has, of which find knows the form.
func (l *lookup) take(root *bbolt.Bucket, dir string, terms []string, f Filter, find func(*bbolt.Bucket, []string, Filter) []region) error {
	if root == nil {
		return nil
	}
	return root.ForEachBucket(func(k []byte) error {
		if len(k) != 8 {
			return nil
		}
		n, b := binary.BigEndian.Uint64(k), root.Bucket(k)
		bad, ok := checked(b, filepath.Join(dir, segmentName(n)))
		if _, known := l.regions[n]; ok || !known {
			l.upto[n], _ = readMark(b)
		}
		if !ok {
			return nil
		}
		l.clean[n] = len(bad) == 0
		l.regions[n] = join(append(find(b, terms, f), bad...))
		return nil
	})
}

// candidates are the blocks of one segment that have every term and lie in the
// filter's time; without a term it is all of the segment.
func candidates(b *bbolt.Bucket, terms []string, f Filter) []region {
	if len(terms) == 0 {
		upto, _ := readMark(b)
		return []region{{0, upto}}
	}
	groups := postings(b, terms[0])
	for _, t := range terms[1:] {
		also := postings(b, t)
		for off := range groups {
			groups[off] &= also[off]
		}
	}
	var list []region
	for off, blocks := range groups {
		if blocks != 0 {
			list = appendBlocks(list, b, off, blocks, f)
		}
	}
	return list
}

// appendBlocks appends those of the group at off that are marked and lie in the
// filter's time.
func appendBlocks(list []region, b *bbolt.Bucket, off, blocks uint64, f Filter) []region {
	v := b.Get(append([]byte{'b'}, key(off)...))
	for from := int64(off); len(v) >= entryBytes; v, blocks = v[entryBytes:], blocks>>1 {
		to := int64(binary.BigEndian.Uint64(v))
		if blocks&1 != 0 && f.during(v[8:]) {
			list = append(list, region{from, to})
		}
		from = to
	}
	return list
}

// during reports whether a block with its first and last time at the front of v
// may have a record of the filter's time.
func (f Filter) during(v []byte) bool {
	from := time.Unix(0, int64(binary.BigEndian.Uint64(v)))
	to := time.Unix(0, int64(binary.BigEndian.Uint64(v[8:])))
	return (f.Since.IsZero() || !to.Before(f.Since)) && (f.Until.IsZero() || from.Before(f.Until))
}

// postings are the blocks that have the term, by the offset of their group.
func postings(b *bbolt.Bucket, term string) map[uint64]uint64 {
	prefix := append([]byte{'t'}, term...)
	groups := make(map[uint64]uint64)
	c := b.Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if rest := k[len(prefix):]; len(rest) == 8 && len(v) == 8 {
			groups[binary.BigEndian.Uint64(rest)] = binary.BigEndian.Uint64(v)
		}
	}
	return groups
}

// in are the regions of the segment n before end that have to be read, in
// order and without overlap: all of one that the index does not know to its end.
func (l *lookup) in(n uint64, end int64) []region {
	if l == nil {
		return []region{{0, end}}
	}
	list, known := l.regions[n]
	if !known || l.upto[n] != end {
		return []region{{0, end}}
	}
	return list
}

// sieve is s for the segment n, whose end that is.
func (l *lookup) sieve(s *sieve, n uint64, end int64) *sieve {
	if l == nil || !l.clean[n] || l.upto[n] != end {
		return s
	}
	clean := *s
	clean.clean = true
	return &clean
}

// join puts regions in order and makes one of those that touch or overlap. A
// damaged line may lie in a block that is a candidate.
func join(list []region) []region {
	slices.SortFunc(list, func(a, b region) int { return cmp.Compare(a.from, b.from) })
	var joined []region
	for _, r := range list {
		if k := len(joined); k > 0 && joined[k-1].to >= r.from {
			joined[k-1].to = max(joined[k-1].to, r.to)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

// forward yields the matching records of the span from its beginning, and reads
// no more than it has to.
func (l *lookup) forward(ctx context.Context, s span, sieve *sieve, yield func(record) bool) {
	list, err := segments(s.dir)
	if err != nil {
		yield(record{err: err})
		return
	}
	since := sinceSegment(s, sieve.f.Since)
	for _, n := range list {
		if n < since {
			continue
		}
		end := s.end.off
		if n > s.end.n {
			return
		}
		if n < s.end.n {
			info, err := os.Stat(filepath.Join(s.dir, segmentName(n)))
			if err != nil {
				continue // retention was faster
			}
			end = info.Size()
		}
		here := l.sieve(sieve, n, end)
		for _, r := range l.in(n, end) {
			if !forwardRegion(ctx, s.dir, n, r, here, yield) {
				return
			}
		}
	}
}

// forwardRegion yields the matching records of one region, and reports whether
// to go on.
func forwardRegion(ctx context.Context, dir string, n uint64, r region, sieve *sieve, yield func(record) bool) bool {
	c := newCursor(dir, place{n: n, off: r.from})
	c.until = place{n: n, off: r.to}
	defer c.close()
	for {
		if err := ctx.Err(); err != nil {
			yield(record{err: err})
			return false
		}
		line, err := c.next()
		if errors.Is(err, io.EOF) || c.at.n != n {
			return true
		}
		rec, ok := sieve.read(line, err, c)
		if ok && !yield(rec) {
			return false
		}
		if err != nil && !isLineError(err) {
			return false
		}
	}
}
