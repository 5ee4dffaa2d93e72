package audit

import (
	"fmt"
	"path/filepath"
	"testing"
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
