package policyfile

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// testOptions are kinds of sources and sinks such as the program has.
func testOptions() Options {
	return Options{
		Sources: map[string]Schema{
			"env":  {Attrs: []Attr{{"name", String, true}}},
			"file": {Attrs: []Attr{{"path", String, true}}},
			"exec": {Attrs: []Attr{{"command", StringList, true}, {"ttl", Duration, false}, {"env", StringMap, false}}},
			"vault": {Attrs: []Attr{{"address", String, true}, {"kv", Int, false}, {"insecure", Bool, false},
				{"renew", Duration, false}}},
		},
		Sinks: map[string]Schema{
			"slack":   {Attrs: []Attr{{"url_secret", String, true}}},
			"webhook": {Attrs: []Attr{{"url", String, true}}},
		},
	}
}

// parseOne parses one file called ci.hcl.
func parseOne(t *testing.T, text string) (*policy.Document, *Diagnostics) {
	t.Helper()
	return Parse(map[string][]byte{"ci.hcl": []byte(text)}, testOptions())
}

// shown returns the diagnostics as a person sees them.
func shown(t *testing.T, d *Diagnostics) string {
	t.Helper()
	var b strings.Builder
	if err := d.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPOL19GoldenDiagnostics holds every message of the decoder: each file in
// testdata/diagnostics against the text and the JSON beside it. Run with
// -update to write them anew.
func TestPOL19GoldenDiagnostics(t *testing.T) {
	update := *updateGolden
	files, err := filepath.Glob("testdata/diagnostics/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".hcl")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			doc, diags := Parse(map[string][]byte{filepath.Base(file): data}, testOptions())
			if doc != nil || !diags.HasErrors() {
				t.Errorf("Parse gave a document, want errors alone")
			}
			var lines bytes.Buffer
			if err := diags.WriteJSON(&lines); err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".hcl")+".txt", shown(t, diags), update)
			golden(t, strings.TrimSuffix(file, ".hcl")+".jsonl", lines.String(), update)
		})
	}
}

// golden compares got with a file, or writes it.
func golden(t *testing.T, file, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
