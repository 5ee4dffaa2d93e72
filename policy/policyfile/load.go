package policyfile

import (
	"maps"
	"slices"

	"sallyport/policy"
)

// Load reads the policy in paths: files, or directories whose *.hcl files are
// read in lexical order, or "-" for o.Stdin. Test files (*_test.hcl) and hidden files of a
// directory are left out, its directories are not entered, and a file that
// two paths lead to is read once.
//
// The document is nil when there are errors. Load never opens a path that is
// not a file or a directory, and never reads more than MaxBytes.
func Load(paths []string, o Options) (*policy.Document, *Diagnostics) {
	p := load(paths, o)
	return p.result()
}

// Parse is Load for files that have been read already, by name. They are
// taken in the order of their names.
func Parse(files map[string][]byte, o Options) (*policy.Document, *Diagnostics) {
	p := parseFiles(files, o)
	return p.result()
}

// parseFiles parses files that have been read already.
func parseFiles(files map[string][]byte, o Options) parsed {
	var sources []source
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sources = append(sources, source{name: name, base: name, data: files[name], test: isTestFile(name)})
	}
	diags := &Diagnostics{}
	if len(sources) == 0 {
		diags.add(Diagnostic{Summary: "the policy has no files", Hint: hintInit})
	}
	return parse(sources, diags, o)
}

// load reads and parses the policy in paths.
func load(paths []string, o Options) parsed {
	diags := &Diagnostics{}
	return parse(read(paths, o.Stdin, diags), diags, o)
}

// result returns the document, if it may be used.
func (p parsed) result() (*policy.Document, *Diagnostics) {
	p.diags.sort()
	if p.diags.HasErrors() {
		return nil, p.diags
	}
	return p.doc, p.diags
}
