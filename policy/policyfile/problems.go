package policyfile

import (
	"slices"

	"sallyport/policy"
)

// AddProblems takes over what [policy.Compile] found in a document of this
// policy.
func (d *Diagnostics) AddProblems(problems []policy.Problem) {
	for _, p := range problems {
		x := Diagnostic{
			Severity: p.Severity,
			Summary:  p.Summary,
			Detail:   p.Detail,
			Hint:     p.Hint,
			Pos:      p.Pos,
		}
		for _, r := range p.Related {
			x.Related = append(x.Related, Note{Pos: r, Message: "compare with"})
		}
		d.placeProblem(&x, p)
		d.add(x)
	}
}

// LoadSet loads the policy in paths and compiles it. The set is nil when
// there are errors; the policy in force is then to stay.
func LoadSet(paths []string, generation uint64, o Options) (*policy.Set, *Diagnostics) {
	return load(paths, o).compile(generation)
}

// ParseSet is LoadSet for files that have been read already, by name.
func ParseSet(files map[string][]byte, generation uint64, o Options) (*policy.Set, *Diagnostics) {
	return parseFiles(files, o).compile(generation)
}

// compile compiles what was parsed. When some blocks have errors of their
// own, the others are compiled as well, so that all problems are reported at
// once; but what could only be a consequence of those errors is not.
func (p parsed) compile(generation uint64) (*policy.Set, *Diagnostics) {
	failed := p.diags.HasErrors()
	if failed && p.lost {
		p.diags.sort()
		return nil, p.diags
	}
	set, problems := policy.Compile(*p.doc, generation)
	if failed {
		problems = slices.DeleteFunc(problems, func(x policy.Problem) bool {
			return !x.Certain && p.inBroken(x.Pos) || slices.ContainsFunc(x.Related, p.inBroken)
		})
	}
	p.diags.AddProblems(problems)
	if !failed && p.check != nil {
		covers := func(_, _ string) bool { return true } // nothing more is said of hosts
		if set != nil {
			covers = set.SecretCovers
		}
		p.diags.AddProblems(p.check(p.doc, &p.alerts, covers))
	}
	p.diags.sort()
	if p.diags.HasErrors() {
		return nil, p.diags
	}
	return set, p.diags
}

// inBroken says whether at lies in a block that has errors of its own.
func (p parsed) inBroken(at policy.Pos) bool {
	for _, r := range p.broken {
		if r.Filename == at.File && r.Start.Line <= at.Line && at.Line <= r.End.Line {
			return true
		}
	}
	return false
}

// Strict makes errors of all warnings.
func (d *Diagnostics) Strict() {
	for i := range d.list {
		d.list[i].Severity = policy.Error
	}
}
