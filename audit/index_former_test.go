package audit

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
)

// formerIndex indexes the closed segments in dir as releases before did, and
// the open one in part.
func formerIndex(t *testing.T, dir string) {
	t.Helper()
	list, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = withBolt(filepath.Join(dir, indexName), bbolt.Options{Timeout: indexWait}, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			root, err := tx.CreateBucket([]byte(formerVersion))
			for k, n := range list {
				if err == nil {
					err = formerSegment(t, root, dir, n, k < len(list)-1)
				}
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func formerSegment(t *testing.T, root *bbolt.Bucket, dir string, n uint64, closed bool) error {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, segmentName(n)))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	first, err := firstRecord(f)
	if err != nil {
		return err
	}
	b, err := root.CreateBucket(key(n))
	if err != nil {
		return err
	}
	put := func(k, v []byte) {
		if err := b.Put(k, v); err != nil {
			t.Fatal(err)
		}
	}
	var x blockIndex
	off := int64(0)
	for off < info.Size() && (closed || off == 0) {
		end, count, err := x.group(f, off, info.Size(), 1)
		if err != nil || count != 1 {
			t.Fatalf("%d blocks, %v", count, err)
		}
		put(append([]byte{'b'}, key(uint64(off))...), bytes.Clone(x.blocks))
		for term, c := range x.terms.counts {
			if c.blocks != 0 {
				put(append(append([]byte{'t'}, term...), key(uint64(off))...), binary.AppendUvarint(nil, 1))
			}
			c.blocks = 0
		}
		off = end
	}
	put([]byte("m"), append(key(uint64(off)), key(first.seq)...))
	if stamp, _ := fileStamp(info); closed {
		put([]byte("w"), append(stamp[:], x.bad...))
	}
	return nil
}

// TestIndexOfAFormerRelease: what a release before has indexed is read, and kept
// while its segments are what they were; what it had not, or what has changed
// since, is indexed.
func TestIndexOfAFormerRelease(t *testing.T) {
	dir := manyRecords(t, 6000)
	_ = os.Remove(filepath.Join(dir, indexName))
	want := map[string][]string{}
	for name, f := range indexedFilters() {
		want[name] = hosts(t, f, dir)
	}
	formerIndex(t, dir)
	list, err := segments(dir)
	if err != nil || len(list) < 5 {
		t.Fatal(list, err)
	}
	check := func(what string, known int) {
		t.Helper()
		for name, f := range indexedFilters() {
			if diff := cmp.Diff(fmt.Sprint(want[name]), fmt.Sprint(hosts(t, f, dir))); diff != "" {
				t.Errorf("%s, %s: %s", what, name, diff)
			}
		}
		look := newLookup(dir, Filter{Sandbox: "id1500"})
		if look == nil || len(look.regions) != known {
			t.Fatalf("%s: lookup %+v, want %d segments", what, look, known)
		}
		blocks := 0
		for _, regions := range look.regions {
			for _, r := range regions {
				blocks += int(r.to-r.from) / blockBytes
			}
		}
		if blocks != 1 {
			t.Errorf("%s: %d blocks have the one record: %v", what, blocks, look.regions)
		}
	}
	held := func() (n map[string]int) {
		n = map[string]int{}
		err := withBolt(filepath.Join(dir, indexName), bbolt.Options{ReadOnly: true, Timeout: lookupWait}, func(db *bbolt.DB) error {
			return db.View(func(tx *bbolt.Tx) error {
				for _, version := range []string{formerVersion, indexVersion} {
					root, count := tx.Bucket([]byte(version)), 0
					if root == nil {
						continue
					}
					if err := root.ForEachBucket(func([]byte) error { count++; return nil }); err != nil {
						return err
					}
					n[version] = count
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	check("as it was", len(list)-1)
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	check("taken up", len(list)-1)
	if diff := cmp.Diff(map[string]int{formerVersion: len(list), indexVersion: 0}, held()); diff != "" {
		t.Error(diff)
	}

	l, err := Open(Options{Dir: dir, SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	write(t, l, "closes.test")
	l.Close()
	time.Sleep(50 * time.Millisecond) // a file system tells no two times apart that are nearer than a tick
	now := time.Now()
	if err := os.Chtimes(filepath.Join(dir, segmentName(list[1])), now, now); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	check("indexed anew where it changed", len(list))
	if diff := cmp.Diff(map[string]int{formerVersion: len(list) - 2, indexVersion: 2}, held()); diff != "" {
		t.Error(diff)
	}
}
