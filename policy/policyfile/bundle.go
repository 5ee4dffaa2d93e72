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
// (ci_test.hcl of ci.hcl): a directory may hold several policies that are named
// one by one. Another test file is named beside the policy. The bundle
// is nil when there are errors. The policy's digest does not depend on test
// files.
func LoadBundle(paths []string, generation uint64, o Options) (*Bundle, *Diagnostics) {
	diags := &Diagnostics{}
	tests, policies := testsOf(paths, diags)
	if len(policies) == 0 && len(paths) > 0 {
		file := paths[0]
		diags.add(Diagnostic{Summary: "only tests are named, and no policy", Pos: policy.Pos{File: file},
			Hint: "name the policy that they test as well: its file, or the directory " + filepath.Dir(file) + " if that is one policy"})
	} else {
		tests = append(read(policies, o.Stdin, diags), tests...)
	}
	return parse(tests, diags, o).bundle(generation)
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

// testsOf reads the test files that are named in paths or belong to a policy
// there, and returns which of the paths are the policy's.
func testsOf(paths []string, diags *Diagnostics) (tests []source, policies []string) {
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
	return r.sources, policies
}

// testFilesOf returns the test files that belong to a path of a policy.
func testFilesOf(path string) []string {
	info, err := os.Stat(path)
	if err != nil {
		return nil // the policy's own reader says what is wrong
	}
	if !info.IsDir() {
		t := TestFileOf(path)
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

// TestFileOf returns the name of the one test file that is read with a policy
// that is a file.
func TestFileOf(path string) string { return strings.TrimSuffix(path, ".hcl") + "_test.hcl" }

func isTestFile(name string) bool { return strings.HasSuffix(name, "_test.hcl") }

// Files returns the names of the files that the paths of a policy lead to,
// test files too. Test files may be all that is named.
func Files(paths []string) ([]string, *Diagnostics) {
	diags := &Diagnostics{}
	sources, policies := testsOf(paths, diags)
	if len(policies) > 0 || len(paths) == 0 {
		sources = append(read(policies, nil, diags), sources...)
	}
	var out []string
	for _, s := range sources {
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
