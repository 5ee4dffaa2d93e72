package policyfile

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keepTexts are the texts that a file of the test may have.
func keepTexts() []string {
	return []string{
		"", // the file is not there
		"sandbox \"%s\" {\n  allow \"a.test\" { methods = [\"GET\"] }\n}\n",
		"sandbox \"%s\" {\n  use = [\"shared\"]\n  allow \"b.test\" {}\n}\n",
		"sandbox \"same\" {\n  allow \"a.test\" {}\n}\n", // declared twice, where two files have it
		"group \"shared\" {\n  allow \"c.test\" {}\n}\n",
		"# a comment about locals\nsandbox \"%s\" {}\n",
		"locals { host = \"%s.test\" }\n",
		"sandbox \"%s\" {\n  allow \"d.test\" { paths = [\"/${local.host}/**\"] }\n}\n",
		"sandbox \"%s\" {\n  dynamic \"allow\" {\n    for_each = [\"e.test\"]\n    labels   = [allow.value]\n    content {}\n  }\n}\n",
		"secret \"KEY\" {\n  hosts = [\"a.test\"]\n  source \"env\" { name = \"%s\" }\n}\n",
		"alert \"%s\" {\n  reasons = [\"host_not_allowed\"]\n  notify  = [\"sec\"]\n}\n",
		"org {\n  allow \"a.test\" {}\n  allow \"c.test\" {}\n}\n",
		"sandbox \"%s\" {\n  allow \"a.test\" { method = [\"GET\"] }\n}\n", // unknown attribute
		"sandbox \"%s\" {\n  allow \"a.test\" {\n}\n",                      // a brace is missing
		"\xef\xbb\xbfsandbox \"%s\" {}\n",
		"\xff",
		"variable \"%s\" { default = 1 }\n",
	}
}

// TestKeptFilesAreAsDecodedAnew changes, adds and removes files at random and
// holds that a load that keeps what has not changed gives the same document and
// the same diagnostics as one that knows nothing.
func TestKeptFilesAreAsDecodedAnew(t *testing.T) {
	texts := keepTexts()
	loaded, taken := 0, 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		files := map[string][]byte{}
		var kept Kept
		for step := range 60 {
			for range 1 + random.IntN(2) {
				name := fmt.Sprintf("f%d", random.IntN(6))
				pick := random.IntN(len(texts))
				if seed%2 == 0 {
					pick = random.IntN(10) // mostly good ones
				}
				text := bytes.ReplaceAll([]byte(texts[pick]), []byte("%s"), []byte(name))
				if files[name+".hcl"] = text; len(text) == 0 {
					delete(files, name+".hcl")
				}
			}
			for _, f := range kept.files {
				taken += f.parts
			}
			o := testOptions()
			wantDoc, want := Parse(maps.Clone(files), o)
			o.Keep = &kept
			doc, diags := Parse(maps.Clone(files), o)
			if d := cmp.Diff(wantDoc, doc); d != "" {
				t.Fatalf("seed %d, step %d: the document differs (-anew +kept):\n%s", seed, step, d)
			}
			if d := cmp.Diff(shown(t, want), shown(t, diags)); d != "" {
				t.Fatalf("seed %d, step %d: the diagnostics differ (-anew +kept):\n%s", seed, step, d)
			}
			if doc != nil {
				loaded++
			}
		}
	}
	if loaded < 100 || taken < 500 {
		t.Errorf("%d loads were good, %d blocks were kept: too few to show anything", loaded, taken)
	}
}

// TestKeepWhatIsUnchanged holds that a file is decoded once, and that what it
// was decoded to is not what a document's reader changes.
func TestKeepWhatIsUnchanged(t *testing.T) {
	files := map[string][]byte{
		"a.hcl": []byte("sandbox \"a\" {\n  allow \"a.test\" {}\n}\n"),
		"b.hcl": []byte("locals { host = \"b.test\" }\nsandbox \"b\" {\n  dynamic \"allow\" {\n    for_each = [local.host]\n    labels   = [allow.value]\n    content {}\n  }\n}\n"),
	}
	o := testOptions()
	o.Keep = &Kept{}
	yields := 0
	o.Yield = func() { yields++ }
	first, diags := Parse(files, o)
	if diags.HasErrors() {
		t.Fatal(shown(t, diags))
	}
	if n := len(o.Keep.files); n != 1 {
		t.Errorf("%d files are kept, want a.hcl alone: what b.hcl comes to hangs on more than its bytes", n)
	}
	if yields < 4 {
		t.Errorf("yielded %d times for two files of three rules", yields)
	}
	first.Sandboxes[0].Name = "changed"
	second, _ := Parse(files, o)
	if second == nil || second.Sandboxes[0].Name != "a" {
		t.Errorf("the second document has what was changed in the first: %+v", second)
	}
	delete(files, "a.hcl")
	if _, diags = Parse(files, o); diags.HasErrors() || len(o.Keep.files) != 0 {
		t.Errorf("%d files are kept that are no more", len(o.Keep.files))
	}
}
