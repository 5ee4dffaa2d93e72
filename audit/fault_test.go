package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// badDisk makes the files that it opens fail.
type badDisk struct {
	mu       sync.Mutex
	room     int   // bytes that may still be written; negative is no limit
	writeErr error // beyond the room
	syncErr  error
	openErr  error // of new segments
	truncErr error
	barred   map[string]bool // paths of files that take nothing, with EIO
	slow     time.Duration   // of each write and fsync
	syncs    func()          // called before each fsync
}

func (d *badDisk) set(f func(d *badDisk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *badDisk) heal() {
	d.room, d.writeErr, d.syncErr, d.openErr, d.truncErr = -1, nil, nil, nil, nil
}

func (d *badDisk) open(path string, flags int) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.openErr != nil && flags&os.O_CREATE != 0 {
		return nil, d.openErr
	}
	f, err := openFile(path, flags)
	if err != nil {
		return nil, err
	}
	return &badFile{file: f, disk: d, path: path}, nil
}

type badFile struct {
	file
	disk *badDisk
	path string
}

// wait is what a slow disk takes for anything.
func (f *badFile) wait() {
	f.disk.mu.Lock()
	slow := f.disk.slow
	f.disk.mu.Unlock()
	time.Sleep(slow)
}

func (f *badFile) Write(p []byte) (int, error) {
	f.wait()
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.barred[f.path] {
		return 0, syscall.EIO
	}
	room := f.disk.room
	if room < 0 || len(p) <= room {
		if room > 0 {
			f.disk.room -= len(p)
		}
		return f.file.Write(p)
	}
	f.disk.room = 0
	n, err := f.file.Write(p[:room])
	if err == nil {
		err = f.disk.writeErr
	}
	return n, err
}

func (f *badFile) Sync() error {
	f.wait()
	if f.disk.syncs != nil {
		f.disk.syncs()
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.syncErr != nil {
		return f.disk.syncErr
	}
	return f.file.Sync()
}

func (f *badFile) Truncate(n int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.truncErr != nil {
		return f.disk.truncErr
	}
	return f.file.Truncate(n)
}

func openBad(t *testing.T, d *badDisk, o Options) *Log {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "audit")
	l, err := openLog(o, d.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// eventually waits until ok, for at most a time that no machine needs.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// actions returns the notes in the log at dir.
func actions(t testing.TB, dir string) []*Event {
	t.Helper()
	var list []*Event
	for e, err := range Read(t.Context(), []string{dir}, Filter{Kind: string(KindAudit)}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

func TestAUD04WriteErrors(t *testing.T) {
	tests := map[string]struct {
		fail func(d *badDisk)
		sync Sync
		// over is whether the last record is in the log although it was refused.
		over bool
	}{
		"disk full at a line's end":     {fail: func(d *badDisk) { d.room, d.writeErr = 0, syscall.ENOSPC }},
		"disk full in a line":           {fail: func(d *badDisk) { d.room, d.writeErr = 100, syscall.ENOSPC }},
		"I/O error in a line":           {fail: func(d *badDisk) { d.room, d.writeErr = 50, syscall.EIO }},
		"read-only":                     {fail: func(d *badDisk) { d.room, d.writeErr = 0, syscall.EROFS }},
		"quota":                         {fail: func(d *badDisk) { d.room, d.writeErr = 10, syscall.EDQUOT }},
		"half a line cannot be cut off": {fail: func(d *badDisk) { d.room, d.writeErr, d.truncErr = 100, syscall.ENOSPC, syscall.EIO }},
		"fsync fails":                   {fail: func(d *badDisk) { d.syncErr = syscall.EIO }, sync: SyncAlways, over: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := &badDisk{room: -1}
			l := openBad(t, d, Options{Sync: test.sync})
			write(t, l, "before.test")
			d.set(test.fail)
			for range 10 {
				if err := l.Write(denial("during.test")); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("write: %v, want unavailable", err)
				}
			}
			if err := l.Healthy(); !errors.Is(err, ErrUnavailable) {
				t.Errorf("health: %v", err)
			}
			d.set((*badDisk).heal)
			eventually(t, "recovery", func() bool { return l.Healthy() == nil })
			write(t, l, "after.test")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(l.o.Dir); err != nil {
				t.Error(err)
			}
			// What is refused while the event of the gap is being written is told
			// in another one.
			notes := actions(t, l.o.Dir)
			var told uint64
			for _, e := range notes {
				told += e.Count
				if e.Note.Action != ActionGap || e.FirstSeen == nil || e.LastSeen.Before(*e.FirstSeen) {
					t.Errorf("note %+v", e)
				}
			}
			if len(notes) < 1 || len(notes) > 2 || told != 10 {
				t.Errorf("%d notes of %d refusals, want a gap of 10", len(notes), told)
			}
			want := "[before.test after.test]"
			if test.over {
				want = "[before.test during.test after.test]"
			}
			if got := hosts(t, Filter{Kind: "dns"}, l.o.Dir); fmt.Sprint(got) != want {
				t.Errorf("log has %v, want %s", got, want)
			}
		})
	}
}

// TestAUD04OneFileTakesNothing: where only the open segment cannot be written,
// the log goes on in another one.
func TestAUD04OneFileTakesNothing(t *testing.T) {
	d := &badDisk{room: -1}
	l := openBad(t, d, Options{Interval: time.Hour})
	write(t, l, "before.test")
	d.set(func(d *badDisk) { d.barred = map[string]bool{l.path(1): true} })
	if err := l.Write(denial("during.test")); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("write: %v, want unavailable", err)
	}
	eventually(t, "recovery", func() bool { return l.Healthy() == nil })
	write(t, l, "after.test")
	if list, _ := segments(l.o.Dir); len(list) != 2 {
		t.Errorf("segments %v, want 2", list)
	}
	if _, err := Verify(l.o.Dir); err != nil {
		t.Error(err)
	}
	if got := hosts(t, Filter{Kind: "dns"}, l.o.Dir); fmt.Sprint(got) != "[before.test after.test]" {
		t.Errorf("log has %v", got)
	}
}

// TestAUD04SlowDisk: on a disk that takes its time, here by a file that does,
// callers wait and share what is written at once; no record is lost, and nobody
// is refused.
func TestAUD04SlowDisk(t *testing.T) {
	const callers, each = 50, 4
	for name, sync := range map[string]Sync{"interval": SyncInterval, "always": SyncAlways} {
		t.Run(name, func(t *testing.T) {
			d := &badDisk{room: -1, slow: 50 * time.Millisecond}
			l := openBad(t, d, Options{Sync: sync, Interval: 10 * time.Millisecond, SegmentBytes: 16 << 10})
			writeConcurrently(t, l, callers, each)
			s := l.Stats()
			if s.Refused > 0 || s.Faults > 0 {
				t.Errorf("%d refused, %d faults", s.Refused, s.Faults)
			}
			if s.Records < callers*each || s.Groups > callers*each/2 {
				t.Errorf("%d records in %d writes: callers that wait do not share one", s.Records, s.Groups)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if r, err := Verify(l.o.Dir); err != nil || r.Records != s.Records {
				t.Errorf("%d records are whole of %d: %v", r.Records, s.Records, err)
			}
		})
	}
}

func TestAUD04IntervalSyncFails(t *testing.T) {
	d := &badDisk{room: -1, syncErr: syscall.EIO}
	l := openBad(t, d, Options{Interval: time.Millisecond})
	write(t, l, "a.test")
	eventually(t, "fault", func() bool { return l.Healthy() != nil })
	d.set(func(d *badDisk) { d.syncErr = nil })
	eventually(t, "recovery", func() bool { return l.Healthy() == nil })
	write(t, l, "b.test")
	if list, _ := segments(l.o.Dir); len(list) < 2 {
		t.Error("the log went on in a segment whose fsync had failed")
	}
	if _, err := Verify(l.o.Dir); err != nil {
		t.Error(err)
	}
}

func TestAUD04PartOfAGroup(t *testing.T) {
	d := &badDisk{room: -1}
	l := openBad(t, d, Options{})
	d.set(func(d *badDisk) { d.room, d.writeErr = 20_000, syscall.ENOSPC })
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]bool{}
	refused := 0
	for i := range 200 {
		wg.Go(func() {
			host := fmt.Sprintf("h%d.test", i)
			err := l.Write(denial(host))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked[host] = true
			} else {
				refused++
			}
		})
	}
	wg.Wait()
	d.set(func(d *badDisk) { d.room = -1 })
	eventually(t, "recovery", func() bool { return l.Healthy() == nil })
	if _, err := Verify(l.o.Dir); err != nil {
		t.Error(err)
	}
	got := hosts(t, Filter{Kind: "dns"}, l.o.Dir)
	if len(got) != len(acked) || refused == 0 || len(acked) == 0 {
		t.Errorf("%d in the log, %d acknowledged, %d refused", len(got), len(acked), refused)
	}
	for _, host := range got {
		if !acked[host] {
			t.Errorf("%s is in the log, but was refused", host)
		}
	}
	var told uint64
	for _, e := range actions(t, l.o.Dir) {
		told += e.Count
	}
	if told != uint64(refused) {
		t.Errorf("the gap tells of %d refusals, want %d", told, refused)
	}
}

func TestRotationGoesOnWithoutANewSegment(t *testing.T) {
	d := &badDisk{room: -1}
	l := openBad(t, d, Options{SegmentBytes: 1 << 10})
	write(t, l, "a.test")
	d.set(func(d *badDisk) { d.openErr = syscall.EMFILE })
	for range 10 {
		write(t, l, "b.test")
	}
	if list, _ := segments(l.o.Dir); len(list) != 1 {
		t.Errorf("segments %v", list)
	}
	if _, err := Verify(l.o.Dir); err != nil {
		t.Error(err)
	}
}

// TestAUD04FullFileSystem fills a small file system for real.
func TestAUD04FullFileSystem(t *testing.T) { onSmallFileSystem(t, fillFileSystem) }

func fillFileSystem(t *testing.T, base string) {
	l, err := Open(Options{Dir: filepath.Join(base, "audit"), Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill := filepath.Join(base, "fill")
	if err := os.WriteFile(fill, make([]byte, 700<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	acked, refused := 0, 0
	for i := 0; refused < 1000 && i < 100_000; i++ {
		err := l.Write(denial(fmt.Sprintf("h%d.test", i)))
		switch {
		case err == nil:
			acked++
		case errors.Is(err, ErrUnavailable) && errors.Is(err, syscall.ENOSPC):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if acked == 0 || refused < 1000 {
		t.Fatalf("%d acknowledged, %d refused", acked, refused)
	}
	l.commitMu.Lock() // else it may be about to cut off half of the event of the gap
	b, err := os.ReadFile(l.path(1))
	l.commitMu.Unlock()
	if err != nil || !bytes.HasSuffix(b, []byte("}\n")) {
		t.Errorf("the segment ends in half a line (%v)", err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	eventually(t, "recovery", func() bool { return l.Healthy() == nil })
	write(t, l, "after.test")
	if _, err := Verify(l.o.Dir); err != nil {
		t.Error(err)
	}
	var told uint64
	for _, e := range actions(t, l.o.Dir) {
		told += e.Count
	}
	if told != uint64(refused) {
		t.Errorf("gaps tell of %d refusals, want %d", told, refused)
	}
	if got := hosts(t, Filter{Kind: "dns"}, l.o.Dir); len(got) != acked+1 {
		t.Errorf("%d records, want %d", len(got), acked+1)
	}
}

// TestAUD04FullFileSystemIsReplaced: where another disk comes into the place of
// a full one, the log goes on there.
func TestAUD04FullFileSystemIsReplaced(t *testing.T) { onSmallFileSystem(t, replaceFileSystem) }

func replaceFileSystem(t *testing.T, base string) {
	dir := filepath.Join(base, "audit")
	l, err := Open(Options{Dir: dir, Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write(t, l, "before.test")
	if err := os.WriteFile(filepath.Join(base, "fill"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill: %v, want no space", err)
	}
	n := 0
	eventually(t, "a full disk", func() bool {
		n++
		return errors.Is(l.Write(denial(fmt.Sprintf("h%d.test", n))), syscall.ENOSPC)
	})
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	eventually(t, "recovery", func() bool { return l.Healthy() == nil })
	write(t, l, "after.test")
	if got := fmt.Sprint(hosts(t, Filter{Kind: "dns"}, dir)); got != "[after.test]" {
		t.Errorf("the new disk has %s", got)
	}
	var told []string
	for _, e := range actions(t, dir) {
		told = append(told, e.Note.Action)
	}
	if want := []string{ActionMoved, ActionGap}; !slices.Equal(told, want) {
		t.Errorf("it tells of %v, want %v", told, want)
	}
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrBusy) {
		t.Errorf("a second writer: %v, want that the log is in use", err)
	}
}

// onSmallFileSystem runs test with a directory on which 1 MiB has room. Root
// mounts one of its own; others do so in a user namespace in which they are
// root.
func onSmallFileSystem(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700")
	switch {
	case err == nil:
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		test(t, dir)
	case errors.Is(err, syscall.EPERM) && os.Getenv(inNamespace) == "":
		rerunInNamespace(t)
	default:
		t.Fatal(err)
	}
}

func TestAUD04ReadOnlyAtOpen(t *testing.T) { onSmallFileSystem(t, openReadOnly) }

func openReadOnly(t *testing.T, base string) {
	dir := filepath.Join(base, "audit")
	l, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := syscall.Mount("", base, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open: %v, want read-only file system and the directory", err)
	}
}
