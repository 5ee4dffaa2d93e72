package differential

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// corpusFile has a sample on each line, as a Go string.
const corpusFile = "testdata/corpus.txt"

// kept are samples that runs of the guards' fuzz targets grew: of http1's with
// the mark for their hosts.
func kept(t testing.TB, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var out [][]byte
	for line := range strings.Lines(string(text)) {
		s, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		must(t, err)
		out = append(out, []byte(s))
	}
	return out
}
