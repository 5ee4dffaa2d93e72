package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkIndex is what the index costs, of questions for so many names.
func BenchmarkIndex(b *testing.B) {
	for _, names := range []int{1, 200, 100_000} {
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			const records = 150_000
			dir := filepath.Join(b.TempDir(), "audit")
			l, err := Open(Options{Dir: dir, Sync: SyncNever, SegmentBytes: 16 << 20})
			if err != nil {
				b.Fatal(err)
			}
			for i := range records {
				if err := l.Later(denial(fmt.Sprintf("h%d.test", i%names))); err != nil {
					b.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			start := cpuTime()
			b.ResetTimer()
			for b.Loop() {
				if err := os.RemoveAll(filepath.Join(dir, indexName)); err != nil {
					b.Fatal(err)
				}
				if err := newIndexer(dir).update(nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N)/records, "cpu-ns/record")
		})
	}
}
