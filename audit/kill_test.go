package audit

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestKillLosesNothing kills a process that writes, fifty times at random
// instants. Every record that it was told is written is in the log, and the
// chain holds over all of its lives.
func TestKillLosesNothing(t *testing.T) {
	const lives = 50
	dir := filepath.Join(t.TempDir(), "audit")
	acked := map[string]bool{}
	for range lives {
		for _, host := range killOne(t, dir, time.Duration(rand.Int64N(int64(40*time.Millisecond)))) {
			acked[host] = true
		}
	}
	if len(acked) < lives {
		t.Fatalf("%d records in %d lives", len(acked), lives)
	}
	l, err := Open(Options{Dir: dir}) // cuts off what the last life left
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	rep, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts(t, Filter{}, dir) {
		delete(acked, host)
	}
	for host := range acked {
		t.Errorf("%s was acknowledged and is not in the log", host)
	}
	t.Logf("%d records in %d segments", rep.Records, rep.Segments)
}

// killOne runs a writer, kills it some time after its first record, and
// returns what it said was written.
func killOne(t *testing.T, dir string, after time.Duration) []string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asWriter+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var list []string
	s := bufio.NewScanner(out)
	for s.Scan() {
		if len(list) == 0 {
			time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
		list = append(list, s.Text())
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() == 1 {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return list
}

func TestTornEndIsCutOff(t *testing.T) {
	tests := map[string]struct {
		tail string
		side bool
	}{
		"half a line":          {`{"schema":"sallyport.audit/1","time":"2026`, false},
		"one byte":             {"{", false},
		"zeros of a power cut": {"\x00\x00\x00\x00\x00\x00\x00\x00", true},
		"a line of rubbish":    {"rubbish\n", true},
		"rubbish and half":     {"rubbish\n{\"sche", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := smallSegments(t, 30)
			list, err := segments(dir)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, segmentName(list[len(list)-1]))
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteString(test.tail)
			f.Close()
			l, err := Open(Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			write(t, l, "after.test")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			rep, err := Verify(dir)
			if err != nil || rep.Records != 32 {
				t.Errorf("verify: %+v, %v", rep, err)
			}
			notes := actions(t, dir)
			if len(notes) != 1 || notes[0].Note.Action != ActionTorn || notes[0].Note.Bytes != int64(len(test.tail)) || notes[0].Note.Segment != filepath.Base(path) {
				t.Errorf("notes %+v", notes)
			}
			side, _ := filepath.Glob(path + ".torn-*")
			if (len(side) == 1) != test.side {
				t.Errorf("files beside the segment: %v", side)
			}
			if test.side {
				if b, err := os.ReadFile(side[0]); err != nil || string(b) != test.tail {
					t.Errorf("kept %q, %v", b, err)
				}
			}
		})
	}
}

func TestLastSegmentWithoutARecord(t *testing.T) {
	dir := smallSegments(t, 30)
	list, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, content := range []string{"", `{"sch`} {
		path := filepath.Join(dir, segmentName(list[len(list)-1]+uint64(i)+1))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	write(t, l, "after.test")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(dir); err != nil || rep.LastSeq != 32 {
		t.Errorf("verify: %+v, %v", rep, err)
	}
}
