package audit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIndexOfLongSegments: of segments of several groups of blocks, indexed in
// several batches, as much is found as by reading.
func TestIndexOfLongSegments(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, SegmentBytes: 9 << 20, Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 24_000 {
		e := someEvent(r)
		if r.IntN(100) > 0 {
			e = denial(fmt.Sprintf("n%d.test", i/10))
			e.Src = &Addr{IP: "10.0.0.1", Port: 1}
		}
		if r.IntN(5000) == 0 {
			e.Sandbox, e.Reason = &Sandbox{Name: "rare"}, "smuggling"
		}
		if err := l.Later(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, segmentName(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[bytes.IndexByte(b[len(b)/2:], '\n')+len(b)/2+1:], "broken") // a line that is no record
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(dir, indexName))
	var filters []Filter
	for range 12 {
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		filters = append(filters, Filter{
			Sandbox: pick("", "", "ci", "rare", "other", "01JB0000000000000000000001"), Reason: pick("", "", "smuggling", "host_not_allowed", "placeholder_leak"),
			Verdict: pick("", "", "allow", "deny"), Kind: pick("", "", "dns", "http"), Blocked: r.IntN(5) == 0, Alerts: r.IntN(5) == 0,
			Host: pick("", "", "n17.test", "n1999.test", "h2.test", "H1.test", "é.test", "*17.test"),
		})
	}
	read := func() (out []string) {
		for _, f := range filters {
			list, bad := found(t, dir, f)
			out = append(out, fmt.Sprintf("%+v: %d records of %v..., %d damaged", f, len(list), list[:min(50, len(list))], bad))
		}
		return out
	}
	want := read()
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	if look := newLookup(dir, Filter{Sandbox: "rare"}); look == nil || len(look.regions) == 0 {
		t.Fatalf("lookup %+v", look)
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("-read +looked up:\n%s", diff)
	}
}
