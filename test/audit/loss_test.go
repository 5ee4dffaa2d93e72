//go:build linux

package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// small mounts a file system of size bytes for one test.
func small(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0700"))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// chained holds that the log's chain is whole.
func chained(t *testing.T, dir string) audit.Report {
	t.Helper()
	r, err := audit.Verify(dir)
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	return r
}

// notes are the records of what became of the log itself.
func notes(t *testing.T, dir string) (list []*audit.Event) {
	t.Helper()
	for e, err := range audit.Read(t.Context(), []string{dir}, audit.Filter{Kind: string(audit.KindAudit)}) {
		must(t, err)
		list = append(list, e)
	}
	return list
}

func noted(list []*audit.Event, action string) *audit.Event {
	i := slices.IndexFunc(list, func(e *audit.Event) bool { return e.Note != nil && e.Note.Action == action })
	if i < 0 {
		return nil
	}
	return list[i]
}

// attempts makes numbered requests and keeps what came of each.
type attempts struct {
	host string
	s    *lab.Sandbox
	mu   sync.Mutex
	n    int
	ok   int
	no   map[string]int // refusals, by reason
}

func (a *attempts) one(t *testing.T) string {
	a.mu.Lock()
	a.n++
	n := a.n
	a.mu.Unlock()
	answer, err := lab.Try(a.s.Client(t, false), lab.NewRequest(t, "GET", fmt.Sprintf("https://%s/%d", a.host, n), ""))
	reason := answer.Reason()
	if err != nil {
		reason = "none"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if reason == "" {
		a.ok++
	} else {
		a.no[reason]++
	}
	return reason
}

// lostNothing holds that of every request that the origin saw there is a
// decision in the log.
func lostNothing(t *testing.T, l *lab.Lab, host, dir string) {
	t.Helper()
	decided := map[string]int{}
	for e, err := range audit.Read(t.Context(), []string{dir}, audit.Filter{Kind: string(audit.KindHTTP)}) {
		must(t, err)
		if e.Phase == audit.PhaseDecision && e.HTTP != nil {
			decided[e.HTTP.Path]++
		}
	}
	seen := 0
	for _, q := range l.Origins.Host(host).Requests() {
		seen++
		if decided[q.Target] != 1 {
			t.Errorf("the origin saw %s, of which the log has %d decisions", q.Target, decided[q.Target])
		}
	}
	if seen == 0 {
		t.Error("the origin saw nothing")
	}
}

func lossPolicy(host string) map[string]string {
	return one("sandbox \"dev\" {\n  allow \"" + host + "\" { addresses = DOCS }\n}\n")
}

// TestFullDisk: a full file system stops traffic and loses no record, is told
// of as a gap with the number of attempts refused, and ends by itself when there
// is space again.
func TestFullDisk(t *testing.T) {
	l := begin(t)
	state := small(t, "6m")
	host := l.Unique("full") + ".loss.test"
	g := l.Gateway(t, lab.GatewayOptions{State: state, Policy: lossPolicy(host), Audit: "segment_bytes = 65536"})
	a := &attempts{host: host, s: g.Attach(t, "dev"), no: map[string]int{}}
	if r := a.one(t); r != "" {
		t.Fatalf("before: %s", r)
	}
	ballast := filepath.Join(state, "ballast")
	fill := func() {
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must(t, err)
		defer f.Close()
		for size := 1 << 20; size > 0; size /= 2 {
			for {
				if _, err := f.Write(make([]byte, size)); err != nil {
					break
				}
			}
		}
	}
	fill()
	if !lab.Within(20*time.Second, func() bool { a.one(t); return a.no["audit_unavailable"]+a.no["none"] > 3 }) {
		t.Fatalf("a full disk stopped nothing: %+v", a.no)
	}
	before := len(l.Origins.Host(host).Requests())
	for range 10 {
		a.one(t)
	}
	if after := len(l.Origins.Host(host).Requests()); after != before {
		t.Errorf("%d requests left without a record", after-before)
	}
	must(t, os.Remove(ballast))
	if !lab.Within(20*time.Second, func() bool { return a.one(t) == "" }) {
		t.Fatalf("no recovery without a restart: %+v\n%s", a.no, g.Stderr())
	}
	dir := filepath.Join(state, "audit")
	gap := noted(notes(t, dir), audit.ActionGap)
	if gap == nil || gap.Count == 0 || !gap.Alerting() {
		t.Errorf("the gap: %+v", gap)
	}
	lostNothing(t, l, host, dir)
	chained(t, dir)
}

// TestReadOnlyFileSystem: a log folder that takes no new file stops no traffic
// while the open segment can be written: no record is lost, and the next segment
// is begun when it can be.
func TestReadOnlyFileSystem(t *testing.T) {
	l := begin(t)
	state := small(t, "32m")
	host := l.Unique("readonly") + ".loss.test"
	g := l.Gateway(t, lab.GatewayOptions{State: filepath.Join(state, "s"), Policy: lossPolicy(host), Audit: "segment_bytes = 4096"})
	a := &attempts{host: host, s: g.Attach(t, "dev"), no: map[string]int{}}
	if r := a.one(t); r != "" {
		t.Fatalf("before: %s", r)
	}
	dir := filepath.Join(state, "s", "audit")
	// A file system with files open for writing cannot be remounted as a whole.
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }() // it may be gone
	must(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for range 20 {
		a.one(t)
	}
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	if !lab.Within(20*time.Second, func() bool { return a.one(t) == "" }) {
		t.Fatalf("no recovery: %+v\n%s", a.no, g.Stderr())
	}
	if len(a.no) > 0 || !strings.Contains(g.Stderr(), "segment cannot be made") {
		t.Errorf("refused: %v\n%s", a.no, g.Stderr())
	}
	lostNothing(t, l, host, dir)
	if r := chained(t, dir); r.Segments < 2 {
		t.Errorf("%d segments", r.Segments)
	}
}

// TestRotationUnderLoad: many small segments while requests and questions come
// at once: the chain holds, and followers see each record once.
func TestRotationUnderLoad(t *testing.T) {
	l := begin(t)
	host := l.Unique("rotate") + ".loss.test"
	g := l.Gateway(t, lab.GatewayOptions{Policy: lossPolicy(host), Audit: "segment_bytes = 8192"})
	s := g.Attach(t, "dev")
	var wg sync.WaitGroup
	var failed atomic.Int64
	for w := range 6 {
		wg.Go(func() {
			c := s.Client(t, w%2 == 0)
			for i := range 60 {
				if _, err := lab.Try(c, lab.NewRequest(t, "GET", fmt.Sprintf("https://%s/%d-%d", host, w, i), "")); err != nil {
					failed.Add(1)
				}
				if _, err := s.Ask(fmt.Sprintf("w%d-%d.evil.test", w, i), dns.TypeA); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d attempts failed", failed.Load())
	}
	s.Mark()
	dir := filepath.Join(g.State, "audit")
	r := chained(t, dir)
	if r.Segments < 50 {
		t.Errorf("only %d segments", r.Segments)
	}
	lostNothing(t, l, host, dir)
	last := uint64(0)
	for _, e := range g.Events(audit.Filter{}) {
		if e.Seq != last+1 {
			t.Fatalf("a follower saw %d after %d", e.Seq, last)
		}
		last = e.Seq
	}
	asked := func() (n int) {
		for e, err := range audit.Read(t.Context(), []string{dir}, audit.Filter{Blocked: true, Kind: "dns"}) {
			must(t, err)
			n += int(max(e.Count, 1))
		}
		return n
	}
	lab.Within(10*time.Second, func() bool { return asked() >= 360 }) // what was folded comes within a second
	if n := asked(); n != 360 {
		t.Errorf("%d questions are recorded, 360 were asked", n)
	}
}

// TestSegmentDeletedByHand: the open segment comes back, a closed one is
// missed; both are told of, and traffic goes on.
func TestSegmentDeletedByHand(t *testing.T) {
	l := begin(t)
	host := l.Unique("deleted") + ".loss.test"
	g := l.Gateway(t, lab.GatewayOptions{Policy: lossPolicy(host), Audit: "segment_bytes = 8192"})
	a := &attempts{host: host, s: g.Attach(t, "dev"), no: map[string]int{}}
	dir := filepath.Join(g.State, "audit")
	list := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
		must(t, err)
		return files
	}
	for len(list()) < 3 {
		if r := a.one(t); r != "" {
			t.Fatal(r)
		}
	}
	files := list()
	must(t, os.Remove(slices.Max(files)))
	if !lab.Within(20*time.Second, func() bool {
		return a.one(t) == "" && noted(notes(t, dir), audit.ActionRestored) != nil
	}) {
		t.Fatalf("the open segment did not come back:\n%s", g.Stderr())
	}
	chained(t, dir)
	lostNothing(t, l, host, dir)
	must(t, os.Remove(files[1]))
	var e *audit.Event
	if !lab.Within(30*time.Second, func() bool { e = noted(notes(t, dir), audit.ActionMissing); return e != nil }) {
		t.Fatal("a closed segment is not missed")
	}
	if e.Severity != audit.Critical || e.Note.Segment != filepath.Base(files[1]) {
		t.Errorf("record: %+v %+v", e, e.Note)
	}
	if _, err := audit.Verify(dir); err == nil || !strings.Contains(err.Error(), "audit-") {
		t.Errorf("verify of a log with a hole: %v", err)
	}
	if r := a.one(t); r != "" {
		t.Errorf("after it: %s", r)
	}
}

// TestIndexCorrupt: an index that is lost or full of rubbish is built anew;
// until then the answers are the same.
func TestIndexCorrupt(t *testing.T) {
	l := begin(t)
	host := l.Unique("index") + ".loss.test"
	g := l.Gateway(t, lab.GatewayOptions{Policy: lossPolicy(host), Audit: "segment_bytes = 8192"})
	a := &attempts{host: host, s: g.Attach(t, "dev"), no: map[string]int{}}
	for i := range 30 {
		a.one(t)
		ask(t, a.s, fmt.Sprintf("n%d.evil.test", i))
	}
	a.s.Mark()
	dir := filepath.Join(g.State, "audit")
	query := func() string {
		return ok(t, "tail", "-n", "0", "--state", g.State, "--sandbox", "dev", "--reason", "host_not_allowed", "--kind", "dns", "-o", "json")
	}
	want := query()
	if n := strings.Count(want, "\n"); n != 30 {
		t.Fatalf("%d records found, want 30", n)
	}
	index := filepath.Join(dir, "index.db")
	eventually(t, "an index", func() bool { _, err := os.Stat(index); return err == nil })
	for name, harm := range map[string]func() error{
		"lost":    func() error { return os.Remove(index) },
		"rubbish": func() error { return os.WriteFile(index, bytes.Repeat([]byte("rubbish!"), 8192), 0o600) },
		"cut":     func() error { return os.Truncate(index, 4096) },
		"empty":   func() error { return os.Truncate(index, 0) },
	} {
		must(t, g.Stop())
		must(t, harm())
		if got := query(); got != want {
			t.Errorf("%s, without a gateway: another answer (%d lines)", name, strings.Count(got, "\n"))
		}
		must(t, g.Start())
		if got := query(); got != want {
			t.Errorf("%s, with a gateway: another answer (%d lines)", name, strings.Count(got, "\n"))
		}
	}
	chained(t, dir)
}
