package audit

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// The index is a bbolt file beside the segments. It has one bucket for each
// segment that is closed, in which are
//
//	"m"                       how far the segment is indexed, and its first seq
//	"w"                       which file it was, and where its lines are no records
//	"b" offset                the blocks of lines of the group that begins there:
//	                          of each its end, first and last time
//	"t" term offset           which blocks of that group have the term, a bit each
//
// It says only where to look: what is read there is matched again, and what it
// does not cover is read as a whole. So it may be behind, and may be lost.
const indexName = "index.db"

// indexVersion is the name of the bucket of buckets. That of releases before is
// formerVersion: what they have indexed is good until its segment is gone. A
// file of none of both is filled anew.
const (
	indexVersion  = "2"
	formerVersion = "1"
)

// blockBytes is the least that a block of the index has, but for the last one
// of a segment.
const blockBytes = 128 << 10

// Bounds of a batch of the index.
const (
	indexEvery     = time.Second
	blocksPerBatch = 64
	indexWait      = 2 * time.Second
)

// indexer keeps the index of one log up to date.
type indexer struct {
	dir    string
	logger hclog.Logger

	broken      bool   // it is known to be, and is not made anew yet
	done        bool   // every closed segment is indexed as far as it can be
	waits       bool   // one of them has changed just now
	first, last uint64 // segments

	pass   *pass         // that is not at its end
	settle time.Duration // see checkSettle, which it is if it is 0
	far    int64         // how far behind it is worth telling, in bytes; tellBehind if it is 0
	behind int64         // bytes that are not indexed yet
	did    int64         // bytes that the last batch has indexed
	most   int64         // the same when the present update began
	told   time.Time     // when that was last told; zero if it was not
}

func (x *indexer) path() string { return filepath.Join(x.dir, indexName) }

// update indexes what has been written since the last time. The file is open
// only meanwhile, so that readers of other processes get at it. A broken one is
// removed and made anew.
func (x *indexer) update(stop <-chan struct{}) error {
	if need, err := x.needed(); err != nil || !need {
		return err
	}
	x.most = 0
	for {
		more, err := x.batch()
		switch {
		case err == nil || errors.Is(err, ErrBusy):
		case noRoom(err):
			x.broken = true // it may be half made
		default:
			if !x.broken {
				x.logger.Warn("index is broken and is made anew", "error", err)
			}
			x.broken = true
			if err := os.Remove(x.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			more, err = x.batch()
		}
		x.broken = x.broken && err != nil
		x.tell(more)
		if err != nil || !more {
			return err
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// noRoom reports whether an error is of a disk that takes no more. bbolt passes
// some on as text.
func noRoom(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS} {
		if errors.Is(err, errno) || strings.Contains(err.Error(), errno.Error()) {
			return true
		}
	}
	return false
}

// Progress is told of an index that is far behind, at the least so often.
const (
	tellBehind = 64 << 20
	tellEvery  = 2 * time.Second
)

// tell says how far the building of an index is that takes long.
func (x *indexer) tell(more bool) {
	x.most = max(x.most, x.behind+x.did)
	now := time.Now()
	switch {
	case !more && !x.told.IsZero():
		x.logger.Info("index is complete")
		x.told = time.Time{}
	case more && x.most >= cmp.Or(x.far, tellBehind) && now.Sub(x.told) >= tellEvery:
		x.told = now
		x.logger.Info("index is being built", "done", fmt.Sprintf("%d%%", 100*(x.most-x.behind)/x.most), "left", fmt.Sprintf("%d MiB", x.behind>>20))
	}
}

// needed reports whether there is anything to index, without a look into the
// file: a log of one segment never gets one.
func (x *indexer) needed() (bool, error) {
	list, err := segments(x.dir)
	if err != nil || len(list) == 0 {
		return false, err
	}
	if x.done {
		return list[0] != x.first || list[len(list)-1] != x.last, nil
	}
	if _, err := os.Stat(x.path()); err == nil {
		return true, nil
	}
	return len(list) > 1, nil
}

// batch is one transaction, and reports whether there is more to do.
func (x *indexer) batch() (more bool, err error) {
	list, err := segments(x.dir)
	if err != nil || len(list) == 0 {
		return false, err
	}
	x.done, x.waits, x.first, x.last, x.behind, x.did = false, false, list[0], list[len(list)-1], 0, 0
	err = withBolt(x.path(), bbolt.Options{Timeout: indexWait}, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			root, err := tx.CreateBucketIfNotExists([]byte(indexVersion))
			if err != nil {
				return err
			}
			former := tx.Bucket([]byte(formerVersion))
			for _, r := range []*bbolt.Bucket{root, former} {
				if err := dropOthers(r, list); err != nil {
					return err
				}
			}
			left := blocksPerBatch
			for _, n := range list[:len(list)-1] {
				if err := x.segment(root, former, n, &left); err != nil {
					return err
				}
			}
			more = left <= 0
			return nil
		})
	})
	if err != nil || !more {
		x.pass = nil // what it has written may be undone; or it is at its end
	}
	x.done = err == nil && !more && !x.waits
	return more, err
}

// dropOthers removes the buckets of segments that are gone. A nil root has none.
func dropOthers(root *bbolt.Bucket, list []uint64) error {
	if root == nil {
		return nil
	}
	var gone [][]byte
	there := make(map[uint64]bool, len(list))
	for _, n := range list {
		there[n] = true
	}
	err := root.ForEachBucket(func(k []byte) error {
		if len(k) != 8 || !there[binary.BigEndian.Uint64(k)] {
			gone = append(gone, bytes.Clone(k))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range gone {
		if err := root.DeleteBucket(k); err != nil {
			return err
		}
	}
	return nil
}

// key is the bucket of the segment n, or an offset.
func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
