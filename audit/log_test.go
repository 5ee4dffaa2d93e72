package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// openTest opens a log that is closed at the end of the test.
func openTest(t testing.TB, o Options) *Log {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "audit")
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// write writes a denial of host and fails the test if that cannot be done.
func write(t testing.TB, l *Log, host string) *Event {
	t.Helper()
	e := denial(host)
	if err := l.Write(e); err != nil {
		t.Fatal(err)
	}
	return e
}

func denial(host string) *Event {
	return &Event{
		Kind: KindDNS, Phase: PhaseDecision, Verdict: "deny", Reason: "host_not_allowed", Severity: Medium,
		Sandbox: &Sandbox{Name: "ci", ID: "01JB0000000000000000000000"}, Host: host,
		DNS: &DNS{QName: host, QType: "A", RCode: "NOERROR", Transport: "udp"},
	}
}

// lines returns the lines of every segment of dir in order. A line without a
// newline fails the test.
func lines(t testing.TB, dir string) []string {
	t.Helper()
	list, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, n := range list {
		b, err := os.ReadFile(filepath.Join(dir, segmentName(n)))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 && b[len(b)-1] != '\n' {
			t.Fatalf("%s ends in a half line", segmentName(n))
		}
		s := bufio.NewScanner(bytes.NewReader(b))
		for s.Scan() {
			all = append(all, s.Text())
		}
	}
	return all
}

// checkChain checks the chain of lines from scratch and returns the events.
func checkChain(t testing.TB, all []string) []Event {
	t.Helper()
	prev := strings.Repeat("0", 64)
	events := make([]Event, len(all))
	for i, line := range all {
		if err := json.Unmarshal([]byte(line), &events[i]); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if e := &events[i]; e.Prev != prev || e.Seq != uint64(i+1) || e.Schema != Schema {
			t.Fatalf("line %d: seq %d prev %s, want %d %s", i+1, e.Seq, e.Prev, i+1, prev)
		}
		sum := sha256.Sum256([]byte(line))
		prev = hex.EncodeToString(sum[:])
	}
	return events
}

func TestWriteChainsRecords(t *testing.T) {
	l := openTest(t, Options{})
	for i := range 3 {
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	events := checkChain(t, lines(t, l.o.Dir))
	if len(events) != 3 || events[2].Host != "h2.test" || events[2].Instance != l.Instance() {
		t.Errorf("events %+v", events)
	}
}

func TestWriteFillsInTheEvent(t *testing.T) {
	l := openTest(t, Options{})
	write(t, l, "a.test")
	e := write(t, l, "b.test")
	sum := sha256.Sum256([]byte(lines(t, l.o.Dir)[0]))
	if e.Seq != 2 || e.Prev != hex.EncodeToString(sum[:]) || len(e.ID) != 26 || e.Time.IsZero() || e.Schema != Schema || e.Instance != l.Instance() {
		t.Errorf("event %+v", e)
	}
}

func TestOpenContinuesTheChain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	for i := range 3 {
		l, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		write(t, l, fmt.Sprintf("h%d.test", i))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if events := checkChain(t, lines(t, dir)); len(events) != 3 {
		t.Errorf("%d events, want 3", len(events))
	}
}

func TestConcurrentWritersShareWrites(t *testing.T) {
	for _, sync := range []Sync{SyncInterval, SyncAlways, SyncNever} {
		l := openTest(t, Options{Sync: sync})
		writeConcurrently(t, l, 64, 50)
		checkChain(t, lines(t, l.o.Dir))
		s := l.Stats()
		if s.Records != 64*50 || s.Groups > s.Records {
			t.Errorf("sync %d: %d records in %d groups", sync, s.Records, s.Groups)
		}
		if sync == SyncAlways && s.Groups > s.Records/2 {
			t.Errorf("sync always: %d records took %d writes", s.Records, s.Groups)
		}
	}
}

// writeConcurrently has n writers write m records each.
func writeConcurrently(t testing.TB, l *Log, n, m int) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			for i := range m {
				if err := l.Write(denial(fmt.Sprintf("w%d-%d.test", w, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestOpenIsForOneWriter(t *testing.T) {
	l := openTest(t, Options{})
	_, err := Open(Options{Dir: l.o.Dir})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second open: %v, want busy with the process", err)
	}
}

func TestWriteAfterClose(t *testing.T) {
	l := openTest(t, Options{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(denial("a.test")); !errors.Is(err, ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

// TestWriteAllocations holds what a record costs in memory: its ID and hash, the
// group and its channel, and the look at the file.
func TestWriteAllocations(t *testing.T) {
	l := openTest(t, Options{Sync: SyncNever})
	e := decision()
	// The log's own goroutines allocate too, now and then: the best of a few
	// runs is what a record costs.
	least := 0.0
	for i := range 5 {
		n := testing.AllocsPerRun(200, func() {
			if err := l.Write(e); err != nil {
				t.Fatal(err)
			}
		})
		if i == 0 || n < least {
			least = n
		}
	}
	if least > 12 {
		t.Errorf("%v allocations a record, want at most 12", least)
	}
}
