package audit

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// BenchmarkTenMillion asks a log of ten million records, some 6 GB, for those
// of one sandbox with one reason, as tail does. It makes the log first, which
// takes a minute or two.
func BenchmarkTenMillion(b *testing.B) {
	const writers, each = 64, 10_000_000 / 64
	dir := filepath.Join(b.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, RetainBytes: 20 << 30})
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := l.Write(oneOfMany(w, i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.Logf("%d records, %d MB written in %v", l.Stats().Records, l.Stats().Bytes/1e6, time.Since(begun))
	for !indexed(b, l) {
		time.Sleep(100 * time.Millisecond)
	}
	b.Logf("indexed after %v", time.Since(begun))
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	if err := newIndexer(dir).update(nil); err != nil { // of what was closed just now
		b.Fatal(err)
	}
	for name, f := range map[string]Filter{
		"common":       {Sandbox: "s1", Reason: "host_not_allowed", Limit: 20},
		"one_in_10000": {Sandbox: "s2", Reason: "path_not_allowed", Limit: 20},
		"seven":        {Sandbox: "s3", Reason: "smuggling"},
		"none":         {Sandbox: "s4", Reason: "smuggling"},
		"no_such_name": {Sandbox: "s-nowhere", Reason: "path_not_allowed", Limit: 20},
	} {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = len(hosts(b, f, dir))
			}
			b.ReportMetric(float64(n), "records")
		})
	}
}

// oneOfMany is the record i of a writer w: of one of 64 sandboxes, a quarter of
// them denied.
func oneOfMany(w, i int) *Event {
	e := denial(fmt.Sprintf("h%d.test", i%50_000))
	e.Sandbox = &Sandbox{Name: fmt.Sprint("s", w), ID: fmt.Sprintf("01JB00000000000000000000%02d", w)}
	switch {
	case i%10_000 == 17:
		e.Reason = "path_not_allowed"
	case w == 3 && i%20_000 == 5:
		e.Reason = "smuggling"
	case i%4 != 0:
		e.Verdict, e.Reason, e.Severity = "allow", "rule_allow", Info
	}
	return e
}
