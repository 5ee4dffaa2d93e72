package audit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkWrite is what a decision costs until it is in the kernel's hands.
func BenchmarkWrite(b *testing.B) {
	for name, sync := range map[string]Sync{"interval": SyncInterval, "never": SyncNever, "always": SyncAlways} {
		for _, writers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("sync=%s/writers=%d", name, writers), func(b *testing.B) {
				l := openTest(b, Options{Dir: filepath.Join(b.TempDir(), "audit"), Sync: sync, RetainBytes: 1 << 30})
				b.SetParallelism(max(writers/2, 1))
				b.ReportAllocs()
				start := cpuTime()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := l.Write(decision()); err != nil {
							b.Error(err)
							return
						}
					}
				})
				reportCPU(b, start)
				s := l.Stats()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
				b.ReportMetric(float64(s.Records)/float64(max(s.Groups, 1)), "records/write")
			})
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, Sync: SyncNever, SegmentBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	writeConcurrently(b, l, 64, 2000)
	l.Close()
	b.ResetTimer()
	for b.Loop() {
		rep, err := Verify(dir)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(rep.Bytes)
	}
}

func BenchmarkReadRareReason(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, Sync: SyncNever, SegmentBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	writeConcurrently(b, l, 64, 2000)
	l.Close()
	b.ResetTimer()
	for b.Loop() {
		if got := hosts(b, Filter{Reason: "smuggling", Limit: 20}, dir); got != nil {
			b.Fatal(got)
		}
	}
	b.SetBytes(int64(l.Stats().Bytes))
}

// BenchmarkSustained is what the log takes for good: records are written by
// many at once, and the time is over when all are indexed too.
func BenchmarkSustained(b *testing.B) {
	l := openTest(b, Options{Dir: filepath.Join(b.TempDir(), "audit"), RetainBytes: 4 << 30})
	b.SetParallelism(32)
	b.ReportAllocs()
	start := cpuTime()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Write(decision()); err != nil {
				b.Error(err)
				return
			}
		}
	})
	written := b.Elapsed()
	for !indexed(b, l) {
		time.Sleep(time.Millisecond)
	}
	reportCPU(b, start)
	b.ReportMetric(float64(b.N)/written.Seconds(), "written/s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "indexed/s")
}

// indexed reports whether the index has what it can have of the log: all but the
// open segment.
func indexed(b *testing.B, l *Log) bool {
	list, err := segments(l.o.Dir)
	if err != nil {
		b.Fatal(err)
	}
	x := newLookup(l.o.Dir, Filter{Verdict: "allow"})
	return len(list) < 2 || x != nil && len(x.regions) == len(list)-1
}

// BenchmarkRequest is what the log adds to a request: the record of its
// decision, for which it waits, and that of its end, for which nobody does. The
// processors' time is all of it, with what is done in the background. Without a
// pace each who makes requests makes the next at once.
func BenchmarkRequest(b *testing.B) {
	allowed, ended := decision(), decision()
	ended.Phase, ended.Verdict, ended.Rule, ended.Secrets, ended.DurationMS = PhaseEnd, "", nil, nil, 12.5
	ended.Upstream, ended.Bytes = &Upstream{IP: "192.0.2.1", Port: 443, Reused: true}, &Bytes{Sent: 900, Received: 8000}
	for _, test := range []struct {
		at   int
		pace time.Duration // between two requests of one
	}{{1, 0}, {64, 0}, {64, 16 * time.Millisecond}} {
		at := test.at
		b.Run(fmt.Sprintf("at_once=%d/pace=%s", at, test.pace), func(b *testing.B) {
			l := openTest(b, Options{Dir: filepath.Join(b.TempDir(), "audit"), RetainBytes: 1 << 30})
			waits := make([]time.Duration, b.N)
			var next atomic.Int64
			var wg sync.WaitGroup
			start := cpuTime()
			for range at {
				wg.Go(func() {
					for {
						n := int(next.Add(1)) - 1
						if n >= b.N {
							return
						}
						d, e := *allowed, *ended
						begun := time.Now()
						err := l.Write(&d)
						waits[n] = time.Since(begun)
						if err = errors.Join(err, l.Later(&e)); err != nil {
							b.Error(err)
							return
						}
						time.Sleep(test.pace)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/1000/float64(b.N), "cpu-us/request")
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Nanoseconds())/1000, "p50-us")
			b.ReportMetric(float64(waits[len(waits)*99/100].Nanoseconds())/1000, "p99-us")
		})
	}
}
