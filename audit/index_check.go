package audit

import (
	"bytes"
	"encoding/binary"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// What is written into a segment after it was indexed, another hand has written:
// it may have damaged lines, and the index must not hide them. So it is indexed
// when it is closed, and looked through by the same pass. What is kept of that,
// under "w", is which file it was, of what size and when it was changed last (a
// time that nobody can set), and where its lines are no records. A reader takes
// the word of the index for that file only, and reads any other as a whole: one
// that is still written to, and one that was changed. Such a one is indexed anew.

// checkSettle is how long a segment must not have changed before it is indexed:
// a change soon after another may have the same time.
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

// addStretch appends a stretch to others, or makes the last one longer if they
// touch or there are too many.
func addStretch(v []byte, from, to int64) []byte {
	n := len(v)
	if n > 0 && (binary.BigEndian.Uint64(v[n-8:]) == uint64(from) || n >= 16*maxDamaged) {
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
