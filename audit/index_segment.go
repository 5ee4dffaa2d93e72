package audit

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// pass is what is held while one closed segment is indexed, over several
// batches if it is long.
type pass struct {
	n     uint64 // segment
	stamp [checkHead]byte
	seq   uint64 // of its first record
	upto  int64
	index blockIndex
}

// segment indexes the closed segment n, up to left blocks of it, unless root or
// former knows the file that is there.
func (x *indexer) segment(root, former *bbolt.Bucket, n uint64, left *int) error {
	path := filepath.Join(x.dir, segmentName(n))
	for _, r := range []*bbolt.Bucket{root, former} {
		if b := segmentBucket(r, n); b != nil {
			if _, ok := checked(b, path); ok {
				return nil
			}
		}
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if *left <= 0 {
		x.behind += info.Size()
		return nil
	}
	b, err := x.bucket(root, former, n, f, info)
	if err != nil || b == nil {
		return err
	}
	begun := x.pass.upto
	if err := x.pass.on(b, f, info.Size(), left); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	x.did += x.pass.upto - begun
	x.behind += info.Size() - x.pass.upto
	if x.pass.upto < info.Size() {
		return nil
	}
	return x.finish(b, f)
}

// segmentBucket is that of the segment n, nil if there is none.
func segmentBucket(root *bbolt.Bucket, n uint64) *bbolt.Bucket {
	if root == nil {
		return nil
	}
	return root.Bucket(key(n))
}

// bucket returns the bucket in which the pass goes on, or a new one in which it
// begins. It is nil if the segment is not to be indexed, or not yet.
func (x *indexer) bucket(root, former *bbolt.Bucket, n uint64, f *os.File, info os.FileInfo) (*bbolt.Bucket, error) {
	stamp, at := fileStamp(info)
	if p := x.pass; p != nil && p.n == n && p.stamp == stamp {
		if b := root.Bucket(key(n)); b != nil {
			return b, nil
		}
	}
	first, err := firstRecord(f)
	if err != nil {
		return nil, nil // nothing in it, or nothing that the index could help with
	}
	if time.Since(at) < cmp.Or(x.settle, checkSettle) {
		x.waits = true
		return nil, nil
	}
	for _, r := range []*bbolt.Bucket{root, former} {
		if segmentBucket(r, n) == nil {
			continue
		}
		if err := r.DeleteBucket(key(n)); err != nil { // of another state of the file
			return nil, err
		}
	}
	x.pass = &pass{n: n, stamp: stamp, seq: first.seq}
	return root.CreateBucket(key(n))
}

// on indexes up to left further blocks of a segment of that size. What follows
// its last whole line, or a line that is too long to be one, is for readers.
func (p *pass) on(b *bbolt.Bucket, f *os.File, size int64, left *int) error {
	b.FillPercent = 0.9
	for *left > 0 && p.upto < size {
		end, n, err := p.index.group(f, p.upto, size, *left)
		if err != nil {
			return err
		}
		if n == 0 {
			p.index.bad = addStretch(p.index.bad, p.upto, size)
			p.upto = size
			break
		}
		if err := p.index.put(b, p.upto); err != nil {
			return err
		}
		*left -= n
		p.upto = end
	}
	return b.Put([]byte("m"), append(key(uint64(p.upto)), key(p.seq)...))
}

// finish says that the segment is known, if nobody has changed it meanwhile.
func (x *indexer) finish(b *bbolt.Bucket, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	p := x.pass
	x.pass = nil
	if now, _ := fileStamp(info); now != p.stamp {
		x.waits = true
		return nil
	}
	return b.Put([]byte("w"), append(p.stamp[:], p.index.bad...))
}

// readMark is how far a segment is indexed, and the seq of its first record
// when that was done.
func readMark(b *bbolt.Bucket) (upto int64, seq uint64) {
	v := b.Get([]byte("m"))
	if len(v) != 16 {
		return 0, 0
	}
	return int64(binary.BigEndian.Uint64(v)), binary.BigEndian.Uint64(v[8:])
}
