package audit

import (
	"bytes"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"
)

// An index of formerVersion has in a segment's bucket
//
//	"b" offset                a block of lines: its end, first and last time
//	"t" term offset           how many records of that block have the term
//
// and "m" and "w" as indexVersion has them.

// formerCandidates is candidates of such a bucket.
func formerCandidates(b *bbolt.Bucket, terms []string, f Filter) []region {
	if len(terms) == 0 {
		upto, _ := readMark(b)
		return []region{{0, upto}}
	}
	offsets := formerPostings(b, terms[0])
	for _, t := range terms[1:] {
		also := formerPostings(b, t)
		offsets = slices.DeleteFunc(offsets, func(off uint64) bool {
			_, ok := slices.BinarySearch(also, off)
			return !ok
		})
	}
	var list []region
	for _, off := range offsets {
		if v := b.Get(append([]byte{'b'}, key(off)...)); len(v) == entryBytes && f.during(v[8:]) {
			list = append(list, region{int64(off), int64(binary.BigEndian.Uint64(v))})
		}
	}
	return list
}

// formerPostings are the offsets of the blocks that have the term, in order.
func formerPostings(b *bbolt.Bucket, term string) []uint64 {
	prefix := append([]byte{'t'}, term...)
	var list []uint64
	c := b.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if rest := k[len(prefix):]; len(rest) == 8 {
			list = append(list, binary.BigEndian.Uint64(rest))
		}
	}
	return list
}
