package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallSegments makes a closed log of n records in several segments and
// returns its directory.
func smallSegments(t testing.TB, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVerifyWholeLog(t *testing.T) {
	dir := smallSegments(t, 50)
	rep, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Records != 50 || rep.FirstSeq != 1 || rep.LastSeq != 50 || rep.Segments < 4 || rep.Anchored || len(rep.Head) != 64 {
		t.Errorf("report %+v", rep)
	}
}

func TestVerifyNamesTheBrokenRecord(t *testing.T) {
	edit := func(n uint64, f func(lines [][]byte) [][]byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, segmentName(n))
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			list := f(bytes.SplitAfter(b, []byte{'\n'}))
			if err := os.WriteFile(path, bytes.Join(list, nil), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(line int, old, new string) func([][]byte) [][]byte {
		return func(l [][]byte) [][]byte {
			l[line-1] = bytes.Replace(l[line-1], []byte(old), []byte(new), 1)
			return l
		}
	}
	tests := map[string]struct {
		edit func(t *testing.T, dir string)
		at   string
		why  string
	}{
		"a verdict changed":        {edit(2, flip(3, `"deny"`, `"alow"`)), "audit-000002.jsonl:3", "not the one"},
		"the first record changed": {edit(1, flip(1, `"deny"`, `"alow"`)), "audit-000001.jsonl:1", "not the one"},
		"a prev changed":           {edit(2, flip(3, `"prev":"`, `"prev":"00`)), "audit-000002.jsonl:3", "no record"},
		"a seq changed":            {edit(2, flip(3, `"seq":`, `"seq":9`)), "audit-000002.jsonl:3", "record 9"},
		"the last of a segment":    {edit(2, func(l [][]byte) [][]byte { return flip(len(l)-1, `"deny"`, `"alow"`)(l) }), "audit-000002.jsonl:", "not the one"},
		"a line taken out":         {edit(2, func(l [][]byte) [][]byte { return append(l[:2:2], l[3:]...) }), "audit-000002.jsonl:3", "1 record missing"},
		"a line put in":            {edit(2, func(l [][]byte) [][]byte { return append(l[:2:2], append([][]byte{l[1]}, l[2:]...)...) }), "audit-000002.jsonl:3", "follows"},
		"a line that is no record": {edit(2, func(l [][]byte) [][]byte { return append(l[:2:2], append([][]byte{[]byte("{}\n")}, l[2:]...)...) }), "audit-000002.jsonl:3", "no record"},
		"a segment cut":            {edit(2, func(l [][]byte) [][]byte { return l[:3] }), "audit-000003.jsonl:1", "missing"},
		"a segment that ends half": {edit(2, func(l [][]byte) [][]byte { return append(l, []byte(`{"schema"`)) }), "audit-000002.jsonl:", "half a line"},
		"a segment gone":           {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, segmentName(2))) }, "audit-000003.jsonl:1", "audit-000002.jsonl to audit-000002.jsonl are missing"},
		"the first segment gone":   {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, segmentName(1))) }, "audit-000002.jsonl:1", "no anchor"},
		"a line that never ends":   {edit(2, func(l [][]byte) [][]byte { return append(l[:2:2], bytes.Repeat([]byte("x"), 3<<20)) }), "audit-000002.jsonl:3", "too long"},
		"the second record's own prev": {edit(1, func(l [][]byte) [][]byte {
			i := bytes.Index(l[1], []byte(`"prev":"`)) + 8
			copy(l[1][i:], "0000000000")
			return l
		}), "audit-000001.jsonl:2", "not the hash"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := smallSegments(t, 50)
			test.edit(t, dir)
			rep, err := Verify(dir)
			var b *Break
			if !errors.As(err, &b) || rep.Broken != b {
				t.Fatalf("verify: %v, want a break", err)
			}
			if !strings.Contains(err.Error(), test.at) || !strings.Contains(err.Error(), test.why) {
				t.Errorf("break %q, want %q and %q", err, test.at, test.why)
			}
		})
	}
}

func TestVerifyWithoutALog(t *testing.T) {
	var b *Break
	if _, err := Verify(t.TempDir()); err == nil || errors.As(err, &b) {
		t.Errorf("verify of nothing: %v", err)
	}
	if _, err := Verify(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("verify of an absent directory passed")
	}
}

func TestVerifyOfALogThatIsWritten(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 16 << 10})
	done := make(chan struct{})
	go func() {
		defer close(done)
		writeConcurrently(t, l, 8, 200)
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if l.Stats().Records == 0 {
			continue
		}
		if _, err := Verify(l.o.Dir); err != nil {
			t.Fatal(err)
		}
	}
}
