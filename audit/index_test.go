package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
)

// manyRecords makes a closed log of n records in segments of 512 KiB, of which
// one in a thousand is of the sandbox "rare".
func manyRecords(t testing.TB, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, SegmentBytes: 512 << 10, Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e := denial(fmt.Sprintf("h%d.test", i))
		if i%1000 == 500 {
			e.Sandbox = &Sandbox{Name: "rare", ID: fmt.Sprint("id", i), Labels: map[string]string{"host": "h1.test", `"reason":"smuggling"`: "x"}}
			e.Reason = "placeholder_leak"
		}
		if err := l.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newIndexer(dir string) *indexer {
	return &indexer{dir: dir, logger: hclog.NewNullLogger(), settle: 1}
}

// filters that the index knows something about.
func indexedFilters() map[string]Filter {
	return map[string]Filter{
		"sandbox":            {Sandbox: "rare"},
		"id":                 {Sandbox: "id1500"},
		"reason":             {Reason: "placeholder_leak"},
		"sandbox and reason": {Sandbox: "rare", Reason: "placeholder_leak"},
		"host":               {Host: "h4321.test"},
		"host of a label":    {Host: "h1.test"},
		"verdict":            {Verdict: "deny", Host: "h777.test"},
		"blocked":            {Blocked: true, Host: "*00.test", Sandbox: "rare"},
		"kind":               {Kind: "dns", Reason: "placeholder_leak"},
		"nothing":            {Reason: "smuggling"},
		"not together":       {Sandbox: "rare", Reason: "host_not_allowed"},
		"since":              {Sandbox: "rare", Since: time.Now().Add(-time.Hour)},
		"until":              {Sandbox: "rare", Until: time.Now().Add(-time.Hour)},
	}
}

func TestIndexFindsWhatReadingFinds(t *testing.T) {
	const n = 6000
	dir := manyRecords(t, n)
	os.Remove(filepath.Join(dir, indexName))
	want := map[string][]string{}
	for name, f := range indexedFilters() {
		want[name] = hosts(t, f, dir)
	}
	check := func(what string) {
		t.Helper()
		for name, f := range indexedFilters() {
			for _, limit := range []int{0, 1, 3, n} {
				f.Limit = limit
				all := want[name]
				if limit > 0 {
					all = all[max(0, len(all)-limit):]
				}
				if len(all) == 0 {
					all = nil
				}
				if diff := cmp.Diff(all, hosts(t, f, dir)); diff != "" {
					t.Errorf("%s, %s, limit %d: %s", what, name, limit, diff)
				}
			}
		}
	}
	check("without an index")
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	if l := newLookup(dir, Filter{Sandbox: "rare"}); l == nil || len(l.upto) < 4 {
		t.Fatalf("lookup %+v", l)
	}
	check("indexed")

	path := filepath.Join(dir, indexName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 8 << 10; i < len(b); i++ {
		b[i] ^= 0x5a
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	check("index corrupt")
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	check("index corrupt and made anew")
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	check("index cut")
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	if l := newLookup(dir, Filter{Sandbox: "rare"}); l == nil || len(l.upto) < 4 {
		t.Fatalf("lookup after it was made anew: %+v", l)
	}
	check("index cut and made anew")
}

func TestIndexBehind(t *testing.T) {
	dir := manyRecords(t, 3000)
	if err := newIndexer(dir).update(nil); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Dir: dir, SegmentBytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	e := denial("new.test")
	e.Sandbox = &Sandbox{Name: "rare"}
	for i := range 3000 {
		write(t, l, fmt.Sprintf("later%d.test", i))
	}
	if err := l.Write(e); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(filepath.Join(dir, indexName), index, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want := "[h500.test h1500.test h2500.test new.test]"
		if got := hosts(t, Filter{Sandbox: "rare"}, dir); fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
		if got := hosts(t, Filter{Sandbox: "rare", Limit: 2}, dir); fmt.Sprint(got) != "[h2500.test new.test]" {
			t.Errorf("%v", got)
		}
		if err := newIndexer(dir).update(nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIndexIsKeptInTheBackground(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 256 << 10, RetainBytes: 1 << 20})
	writeConcurrently(t, l, 8, 1500)
	eventually(t, "index", func() bool {
		look := newLookup(l.o.Dir, Filter{Verdict: "deny"})
		return look != nil && len(look.upto) > 1
	})
	l.retain()
	list, err := segments(l.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "removal of what retention removed", func() bool {
		look := newLookup(l.o.Dir, Filter{Verdict: "deny"})
		if look == nil {
			return false
		}
		for n := range look.upto {
			if n < list[0] {
				return false
			}
		}
		return true
	})
	write(t, l, "last.test")
	if got := hosts(t, Filter{Host: "last.test"}, l.o.Dir); fmt.Sprint(got) != "[last.test]" {
		t.Errorf("found %v", got)
	}
}

// TestIndexTellsHowFarItIs: an index that takes long says so while it is built,
// and when it is complete; one that is not far behind says nothing.
func TestIndexTellsHowFarItIs(t *testing.T) {
	dir := manyRecords(t, 20_000)
	_ = os.Remove(filepath.Join(dir, indexName)) // the log has begun one if that took it long
	var out bytes.Buffer
	x := newIndexer(dir)
	x.logger, x.far = hclog.New(&hclog.LoggerOptions{Output: &out}), 1<<20
	if err := x.update(nil); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !regexp.MustCompile(`index is being built: done="?[1-9][0-9]?%"? left="[0-9]+ MiB"\n`).MatchString(s) || !strings.HasSuffix(s, "index is complete\n") {
		t.Errorf("progress:\n%s", s)
	}
	out.Reset()
	if err := x.update(nil); err != nil || out.Len() > 0 {
		t.Errorf("%v, and it said %s", err, &out)
	}
}

func TestSmallLogHasNoIndex(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	for range 2 {
		l, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		write(t, l, "a.test")
		l.Close()
	}
	if _, err := os.Stat(filepath.Join(dir, indexName)); !os.IsNotExist(err) {
		t.Errorf("index of a log of two records: %v", err)
	}
}

func TestMembers(t *testing.T) {
	tests := map[string]struct {
		in   string
		want map[string]string
		ok   bool
	}{
		"flat":    {`{"a":1,"b":"x\"y","c":null}`, map[string]string{"a": "1", "b": `"x\"y"`, "c": "null"}, true},
		"nested":  {`{"a":{"b":["}",{"c":"]"}]},"d":true}`, map[string]string{"a": `{"b":["}",{"c":"]"}]}`, "d": "true"}, true},
		"slashes": {`{"a":"\\","b":"\\\""}`, map[string]string{"a": `"\\"`, "b": `"\\\""`}, true},
		"empty":   {`{}`, map[string]string{}, true},
		"open":    {`{"a":"}`, map[string]string{}, false},
		"no name": {`{1:2}`, map[string]string{}, false},
		"comma":   {`{"a":1,}`, map[string]string{"a": "1"}, false},
		"nothing": {``, map[string]string{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			ok := members([]byte(test.in), func(name, value []byte) bool { got[string(name)] = string(value); return true })
			if diff := cmp.Diff(test.want, got); diff != "" || ok != test.ok {
				t.Errorf("%v %s", ok, diff)
			}
		})
	}
}

func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":{"b":["}",{"c":"]"}]},"d":"\\\""}`))
	f.Add([]byte(`{"a":"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		members(b, func(name, value []byte) bool { text(value); return true })
		var c termCounts
		c.line(b)
		for s := range c.counts {
			if s == "" || s[len(s)-1] != 0 {
				t.Fatalf("term %q", s)
			}
		}
	})
}

func BenchmarkIndexedRead(b *testing.B) {
	dir := manyRecords(b, 50_000)
	if err := newIndexer(dir).update(nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if got := hosts(b, Filter{Sandbox: "rare", Reason: "placeholder_leak", Limit: 20}, dir); len(got) != 20 {
			b.Fatal(len(got))
		}
	}
}

func BenchmarkLineTerms(b *testing.B) {
	line := encode(decision())
	var c termCounts
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		c.line(line)
	}
	reportCPU(b, start)
}

// TestIndexOnAFullDisk: that there is no room is what is said, once, and not
// that the index is broken; when there is room it is made.
func TestIndexOnAFullDisk(t *testing.T) {
	onSmallFileSystem(t, func(t *testing.T, base string) {
		dir := filepath.Join(base, "audit")
		l, err := Open(Options{Dir: dir, SegmentBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			write(t, l, fmt.Sprintf("h%d.test", i))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, indexName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		ballast, err := os.Create(filepath.Join(base, "ballast"))
		if err != nil {
			t.Fatal(err)
		}
		defer ballast.Close()
		for err == nil {
			_, err = ballast.Write(make([]byte, 4<<10))
		}
		var out bytes.Buffer
		time.Sleep(50 * time.Millisecond) // a file system tells no two times apart that are nearer than a tick
		x := newIndexer(dir)
		x.logger = hclog.New(&hclog.LoggerOptions{Output: &out})
		for range 5 {
			if err := x.update(nil); err == nil || !strings.Contains(err.Error(), "no space left") {
				// What is half made may be found broken; making it anew finds no room.
				t.Errorf("update: %v, want that there is no space left", err)
			}
		}
		if strings.Contains(out.String(), "broken") {
			t.Errorf("logged %s", out.String())
		}
		if err := ballast.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if err := x.update(nil); err != nil {
			t.Fatal(err)
		}
		if look := newLookup(dir, Filter{Host: "h7.test"}); look == nil || len(look.regions) == 0 {
			t.Errorf("no index, although there is room: %+v", look)
		}
	})
}
