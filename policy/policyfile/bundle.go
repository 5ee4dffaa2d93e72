package policyfile

import (
	"os"
	"path/filepath"
	"strings"

	"sallyport/policy"
)

// Bundle is a policy as a repository keeps it: what is in force and the tests
// beside it.
type Bundle struct {
	Document *policy.Document
	Set      *policy.Set
	Tests    []Test // those of test files too, in the order of files and lines
	files    map[string]*text
}

// LoadBundle loads and compiles the policy in paths together with its tests:
// test blocks anywhere, and test files (*_test.hcl), which hold tests alone.
// A directory's test files are read with it, a file's is the one beside it
// (ci_test.hcl of ci.hcl); a test file may also be named by itself. The bundle
// is nil when there are errors. The policy's digest does not depend on test
// files.
func LoadBundle(paths []string, generation uint64, o Options) (*Bundle, *Diagnostics) {
	diags := &Diagnostics{}
	return parse(readAll(paths, o.Stdin, diags), diags, o).bundle(generation)
}

// ParseBundle is LoadBundle for files that have been read already, by name.
func ParseBundle(files map[string][]byte, generation uint64, o Options) (*Bundle, *Diagnostics) {
	return parseFiles(files, o).bundle(generation)
}

func (p parsed) bundle(generation uint64) (*Bundle, *Diagnostics) {
	set, diags := p.compile(generation)
	if diags.HasErrors() {
		return nil, diags
	}
	for _, t := range p.tests {
		if set.Sandbox(t.Sandbox) == nil {
			diags.add(Diagnostic{Summary: "test " + quote(t.Name) + ": sandbox " + quote(t.Sandbox) + " is not declared", Pos: t.Pos,
				Hint: didYouMean(t.Sandbox, set.Sandboxes())})
		}
	}
	if diags.HasErrors() {
		return nil, diags
	}
	return &Bundle{Document: p.doc, Set: set, Tests: p.tests, files: diags.files}, diags
}

// readAll reads the files of a policy and its test files.
func readAll(paths []string, stdin []byte, diags *Diagnostics) []source {
	var policies []string
	r := &reader{diags: diags, left: MaxBytes, tests: true}
	for _, p := range paths {
		if isTestFile(p) {
			r.file(p, filepath.Base(p))
		} else {
			policies = append(policies, p)
		}
	}
	for _, p := range policies {
		for _, t := range testFilesOf(p) {
			r.file(t, filepath.Base(t))
		}
	}
	tests := r.sources
	return append(read(policies, stdin, diags), tests...)
}

// testFilesOf returns the test files that belong to a path of a policy.
func testFilesOf(path string) []string {
	info, err := os.Stat(path)
	if err != nil {
		return nil // the policy's own reader says what is wrong
	}
	if !info.IsDir() {
		t := strings.TrimSuffix(path, ".hcl") + "_test.hcl"
		if _, err := os.Stat(t); err != nil {
			return nil
		}
		return []string{t}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // likewise
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && isTestFile(e.Name()) && e.Name()[0] != '.' {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	return out
}

func isTestFile(name string) bool { return strings.HasSuffix(name, "_test.hcl") }

// Files returns the names of the files that the paths of a policy lead to,
// test files too.
func Files(paths []string) ([]string, *Diagnostics) {
	diags := &Diagnostics{}
	var out []string
	for _, s := range readAll(paths, nil, diags) {
		out = append(out, s.name)
	}
	diags.sort()
	return out, diags
}

// Contents reads the files of the policy in paths, without test files, by
// name.
func Contents(paths []string, o Options) (map[string][]byte, *Diagnostics) {
	diags := &Diagnostics{}
	out := map[string][]byte{}
	for _, s := range read(paths, o.Stdin, diags) {
		out[s.name] = s.data
	}
	diags.sort()
	return out, diags
}
