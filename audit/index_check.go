package audit

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// What is written into a segment after it was indexed, another hand has written:
// it may have damaged lines, and the index must not hide them. So a closed
// segment is looked through once it is indexed to its end. What is kept of that,
// under "w", is which file it was, of what size and when it was changed last (a
// time that nobody can set), and where its lines are no records. A reader takes
// the word of the index for that file only, and reads any other as a whole: one
// that is still written to, and one that was changed.

// checkSettle is how long a segment must not have changed before it is looked
// through: a change soon after another may have the same time.
const checkSettle = 2 * time.Second

// maxDamaged bounds how many stretches without records are kept of a segment.
// Beyond it the last one goes on to the end.
const maxDamaged = 1000

// checkHead is the length of what stands before the stretches.
const checkHead = 24

// fileStamp tells the states of a file apart.
func fileStamp(info os.FileInfo) (stamp [checkHead]byte, at time.Time) {
	inode, at := changed(info)
	binary.BigEndian.PutUint64(stamp[:], inode)
	binary.BigEndian.PutUint64(stamp[8:], uint64(info.Size()))
	binary.BigEndian.PutUint64(stamp[16:], uint64(at.UnixNano()))
	return stamp, at
}

// check looks through a closed segment that is indexed to its end, unless that
// is done, and reports whether it has to be tried again.
func (x *indexer) check(b *bbolt.Bucket, f *os.File, left *int) (again bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	stamp, at := fileStamp(info)
	if v := b.Get([]byte("w")); len(v) >= checkHead && bytes.Equal(v[:checkHead], stamp[:]) {
		return false, nil
	}
	if time.Since(at) < cmp.Or(x.settle, checkSettle) || *left <= 0 {
		return true, nil
	}
	*left -= int(info.Size() / blockBytes)
	v, whole, err := damaged(f, info.Size(), stamp[:])
	if err != nil || !whole {
		return false, err
	}
	if info, err = f.Stat(); err != nil {
		return false, err
	}
	if now, _ := fileStamp(info); now != stamp {
		return true, nil
	}
	return false, b.Put([]byte("w"), v)
}

// damaged appends to v where the lines of a segment are no records, as pairs of
// offsets. It reports whether it could read all of it.
func damaged(r io.ReaderAt, size int64, v []byte) ([]byte, bool, error) {
	var lines blockIndex
	head := len(v)
	for off := int64(0); off < size; {
		block, err := lines.read(r, off, size, true)
		if err != nil || len(block) == 0 {
			return nil, false, err
		}
		for line := range bytes.Lines(block) {
			end := off + int64(len(line))
			if line = bytes.TrimSuffix(line, []byte{'\n'}); !sound(line) {
				if _, err := DecodeLine(line); err != nil {
					v = addStretch(v, head, off, end)
				}
			}
			off = end
		}
	}
	return v, true, nil
}

// addStretch appends a stretch to those that follow the head of v, or makes the
// last one longer if they touch or there are too many.
func addStretch(v []byte, head int, from, to int64) []byte {
	n := len(v)
	if n > head && (binary.BigEndian.Uint64(v[n-8:]) == uint64(from) || n-head >= 16*maxDamaged) {
		binary.BigEndian.PutUint64(v[n-8:], uint64(to))
		return v
	}
	return append(append(v, key(uint64(from))...), key(uint64(to))...)
}

// checked returns where the lines of the segment at path are no records, and
// whether the index knows that of the file that is there now.
func checked(b *bbolt.Bucket, path string) ([]region, bool) {
	v := b.Get([]byte("w"))
	if len(v) < checkHead || (len(v)-checkHead)%16 != 0 {
		return nil, false
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, false
	}
	stamp, _ := fileStamp(info)
	upto, _ := readMark(b)
	if !bytes.Equal(v[:checkHead], stamp[:]) || upto != info.Size() {
		return nil, false
	}
	var list []region
	for v = v[checkHead:]; len(v) > 0; v = v[16:] {
		list = append(list, region{int64(binary.BigEndian.Uint64(v)), int64(binary.BigEndian.Uint64(v[8:]))})
	}
	return list, true
}
