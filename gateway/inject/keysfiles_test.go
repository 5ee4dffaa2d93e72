package inject

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkKeysInFiles counts what of files that hold no key of anybody looks
// like one: the false positives of credential_pattern. The files are those
// below the folders in KEYS_IN (colons between), by default the cache of Go's
// modules. With -v each is named with its format:
//
//	KEYS_IN=/usr/lib/python3 go test -run '^$' -bench KeysInFiles -benchtime 1x -v ./gateway/inject
func BenchmarkKeysInFiles(b *testing.B) {
	const most = 16 << 20 // bytes of a file that are read
	folders := os.Getenv("KEYS_IN")
	if folders == "" {
		out, err := exec.Command("go", "env", "GOMODCACHE").Output()
		if err != nil {
			b.Fatal(err)
		}
		folders = strings.TrimSpace(string(out))
	}
	table, _ := tableOf(1, "")
	for b.Loop() {
		files, size, hits := 0, 0, map[string]int{}
		look := func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // what cannot be read is not counted
			}
			text, err := os.ReadFile(path)
			if err != nil || len(text) > most {
				return nil
			}
			files, size = files+1, size+len(text)
			table.known(string(text), "free.test", func(name string) {
				hits[name]++
				b.Logf("%s in %s", name, path)
			})
			return nil
		}
		for folder := range strings.SplitSeq(folders, ":") {
			if err := filepath.WalkDir(folder, look); err != nil {
				b.Fatal(err)
			}
		}
		all := 0
		for name, n := range hits {
			all += n
			b.ReportMetric(float64(n), name)
		}
		b.ReportMetric(float64(files), "files")
		b.ReportMetric(float64(size>>20), "MiB")
		b.ReportMetric(float64(all), "hits")
	}
}
