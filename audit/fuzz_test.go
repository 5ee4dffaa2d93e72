package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// FuzzChain puts hostile bytes after a good segment. Nothing may panic or
// hang, no reader may invent records, and a log that opens on them continues a
// chain that verifies or names the break.
func FuzzChain(f *testing.F) {
	good := goodSegment(f)
	f.Add(good, []byte{}, true)
	f.Add(good[:len(good)/2], []byte("\n"), true)
	f.Add(good, good, true)
	f.Add([]byte("\x00\x00\n\n{}\n"), good, false)
	f.Add([]byte(`{"schema":"sallyport.audit/1"}`+"\n"), bytes.Repeat([]byte("x"), 5000), false)
	f.Fuzz(func(t *testing.T, first, second []byte, open bool) {
		dir := filepath.Join(t.TempDir(), "audit")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, b := range [][]byte{first, second} {
			if err := os.WriteFile(filepath.Join(dir, segmentName(uint64(i+1))), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := readAll(t, dir)
		rep, err := Verify(dir)
		var broken *Break
		if err != nil && !errors.As(err, &broken) {
			t.Fatal(err)
		}
		if err == nil && (rep.Records > uint64(before) || (rep.Records > 0 && rep.LastSeq-rep.FirstSeq+1 != rep.Records)) {
			t.Fatalf("report %+v, but %d lines read", rep, before)
		}
		if !open {
			return
		}
		l, err := Open(Options{Dir: dir, Sync: SyncNever, Now: newClock().Now})
		if err != nil {
			t.Fatal(err)
		}
		e := write(t, l, "after.test")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		list, err := segments(dir)
		if err != nil {
			t.Fatal(err)
		}
		last, err := lastRecordOf(openFile, filepath.Join(dir, segmentName(list[len(list)-1])))
		if err != nil || last.head.seq != e.Seq {
			t.Fatalf("the last record is %d (%v), want %d", last.head.seq, err, e.Seq)
		}
	})
}

// goodSegment is a segment of three records that never changes.
func goodSegment(f *testing.F) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", "good.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// readAll counts what the forward and the backward reader find, which must be
// the same.
func readAll(t *testing.T, dir string) int {
	t.Helper()
	count := func(f Filter) (good, bad int) {
		for _, err := range Read(context.Background(), []string{dir}, f) {
			var line *LineError
			switch {
			case err == nil:
				good++
			case errors.As(err, &line):
				bad++
			default:
				t.Fatal(err)
			}
		}
		return good, bad
	}
	good, bad := count(Filter{})
	if g, b := count(Filter{Limit: 1 << 20}); g != good || b != bad {
		t.Fatalf("forward %d and %d, backward %d and %d lines", good, bad, g, b)
	}
	return good + bad
}

// FuzzDecodeLine decodes and prints hostile lines, and encodes again what they
// are read as.
func FuzzDecodeLine(f *testing.F) {
	for line := range bytes.Lines(goodSegment(f)) {
		f.Add(bytes.TrimSpace(line))
	}
	f.Add([]byte(`{"schema":"sallyport.audit/1","sandbox":{"name":null,"labels":{"":""}},"run":{"exit":-1},"first_seen":"0000-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"schema":"sallyport.audit/1","time":"9999-12-31T23:59:59.999999999+14:00","secrets":[{}],"count":18446744073709551615}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if h, ok := parseHead(line); ok && (h.seq == 0 || h.time.IsZero() && h.time.Year() != 1) {
			t.Fatalf("head %+v", h)
		}
		e, err := DecodeLine(line)
		if err != nil {
			return
		}
		var b bytes.Buffer
		Compact(&b, e, false)
		checkPlainLine(t, b.String())
		Compact(io.Discard, e, true)
		e.ID, e.Instance, e.Prev = "", "", ""
		again := encode(e)
		if len(again) > maxRecord+headRoom {
			t.Fatalf("encoded to %d bytes", len(again))
		}
		if _, err := DecodeLine(again); err != nil {
			t.Fatalf("%v: %s", err, again)
		}
	})
}
