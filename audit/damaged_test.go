package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// found is what a filter takes, and how many lines are told to be no records.
func found(t *testing.T, dir string, f Filter) (list []string, bad int) {
	t.Helper()
	for e, err := range Read(t.Context(), []string{dir}, f) {
		switch {
		case isLineError(err):
			bad++
		case err != nil:
			t.Fatal(err)
		default:
			list = append(list, e.Host)
		}
	}
	return list, bad
}

// damage overwrites lines of segments, given as shares of a segment, in ways of
// which each leaves a newline at the end. It returns how many there are, their
// bytes by segment, and the hosts whose records are gone.
func damage(t *testing.T, dir string) (lines int, size map[uint64]int64, gone []string) {
	t.Helper()
	ways := []func(b []byte){
		func(b []byte) { copy(b, append([]byte("{broken"), bytes.Repeat([]byte(" "), len(b))...)) },
		func(b []byte) { clear(b[len(b)/2 : len(b)/2+20]) },
		func(b []byte) { copy(b[len(b)/3:], b[:len(b)-len(b)/3]) },
		func(b []byte) { b[len(b)-1] = ' ' },
		func(b []byte) { b[bytes.Index(b, []byte(`"reason"`))] = 'x' },
	}
	list, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	size = map[uint64]int64{}
	for k, n := range list {
		path := filepath.Join(dir, segmentName(n))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all := bytes.SplitAfter(b, []byte{'\n'})
		at := []int{len(all) / 3, len(all)/3 + 1, len(all) / 2, len(all) - 2}
		if k == 1 {
			at[0] = 0 // the first of a segment
		}
		for i, a := range at {
			e, err := DecodeLine(bytes.TrimSuffix(all[a], []byte{'\n'}))
			if err != nil {
				continue // what every segment ends in
			}
			gone = append(gone, e.Host)
			ways[(k+i)%len(ways)](all[a][:len(all[a])-1])
			lines++
			size[n] += int64(len(all[a]))
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(b, 0) // all is of the bytes of b
		if err := errors.Join(err, f.Close(), os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
			t.Fatal(err)
		}
	}
	return lines, size, gone
}

// TestFilterTellsOfDamagedLines: whatever is asked for, and whatever the index
// had known, lines that are no records any longer are told of: one of them may
// be what is asked for.
func TestFilterTellsOfDamagedLines(t *testing.T) {
	dir := manyRecords(t, 6000)
	path := filepath.Join(dir, indexName)
	_ = os.Remove(path)
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for name, f := range indexedFilters() {
		want[name] = hosts(t, f, dir)
	}
	time.Sleep(50 * time.Millisecond) // a file system tells no two times apart that are nearer than a tick
	lines, size, gone := damage(t, dir)
	for name := range want {
		want[name] = slices.DeleteFunc(want[name], func(host string) bool { return slices.Contains(gone, host) })
	}
	check := func(what string) {
		t.Helper()
		for name, f := range indexedFilters() {
			for _, limit := range []int{0, 10_000} {
				f.Limit = limit
				got, bad := found(t, dir, f)
				if bad != lines {
					t.Errorf("%s, %s, limit %d: told of %d damaged lines, want %d", what, name, limit, bad, lines)
				}
				if diff := cmp.Diff(fmt.Sprint(want[name]), fmt.Sprint(got)); diff != "" {
					t.Errorf("%s, %s, limit %d: %s", what, name, limit, diff)
				}
			}
		}
	}
	check("damaged after it was indexed")
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	check("looked through again")

	l := newLookup(dir, Filter{Reason: "smuggling"})
	list, err := segments(dir)
	if l == nil || err != nil || len(list) < 4 {
		t.Fatal(l, err, list)
	}
	for k, n := range list[:len(list)-1] {
		info, err := os.Stat(filepath.Join(dir, segmentName(n)))
		if err != nil {
			t.Fatal(err)
		}
		read := int64(0)
		for _, r := range l.in(n, info.Size()) {
			read += r.to - r.from
		}
		if k != 1 && read != size[n] { // one whose first line is no record has no index
			t.Errorf("segment %d: %d bytes are read, want the %d that are damaged", n, read, size[n])
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("without an index")
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	check("indexed after it was damaged")
}

// TestFollowTellsOfDamagedLines: the same of what comes.
func TestFollowTellsOfDamagedLines(t *testing.T) {
	l := openTest(t, Options{})
	write(t, l, "a.test")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	path := filepath.Join(l.o.Dir, segmentName(1))
	for e, err := range Follow(ctx, []string{l.o.Dir}, Filter{Verdict: "deny"}) {
		switch {
		case isLineError(err):
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error %v", err)
			}
			return
		case err != nil || e.Host != "a.test":
			t.Fatal(e, err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("{broken\n")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the damaged line was passed over")
}

// TestIndexIsNotTakenAtItsWordTooEarly: a segment that changed just now is read
// as a whole: another change may have the same time.
func TestIndexIsNotTakenAtItsWordTooEarly(t *testing.T) {
	dir := manyRecords(t, 3000)
	_ = os.Remove(filepath.Join(dir, indexName))
	x := newIndexer(dir)
	x.settle = time.Hour
	if err := x.update(nil); err != nil {
		t.Fatal(err)
	}
	if l := newLookup(dir, Filter{Reason: "smuggling"}); l == nil || len(l.regions) > 0 {
		t.Errorf("lookup %+v", l)
	}
	x.settle = 1
	if err := x.update(nil); err != nil { // it comes back to it although nothing is new
		t.Fatal(err)
	}
	if l := newLookup(dir, Filter{Reason: "smuggling"}); l == nil || len(l.regions) == 0 {
		t.Errorf("lookup %+v", l)
	}
}

func TestDamagedStretchesAreBounded(t *testing.T) {
	bad := bytes.Repeat([]byte("x\n"+string(soundLine(t))+"\n"), maxDamaged+50)
	var x blockIndex
	end, size := int64(0), int64(len(bad))
	for end < size {
		next, n, err := x.group(bytes.NewReader(bad), end, size, groupBlocks)
		if err != nil || n == 0 {
			t.Fatalf("at %d of %d: %d blocks, %v", end, size, n, err)
		}
		end = next
	}
	if len(x.bad) != 16*maxDamaged {
		t.Errorf("%d bytes", len(x.bad))
	}
}
