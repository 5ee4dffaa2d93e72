package main

import (
	"fmt"
	"slices"
	"strings"

	"sallyport/audit"
	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// checkFilter refuses a word that no record has: nothing would be found, and
// that would look like nothing has happened.
func checkFilter(f audit.Filter) error {
	for _, x := range []struct {
		what, got string
		names     []string
	}{
		{"reason", f.Reason, slices.Sorted(slices.Values(slices.Concat(policyfile.Reasons(), audit.ErrorClasses())))},
		{"kind", f.Kind, audit.Kinds()},
		{"verdict", f.Verdict, []string{"allow", "deny"}},
	} {
		if x.got == "" || slices.Contains(x.names, x.got) {
			continue
		}
		hint := policyfile.DidYouMean(x.got, x.names)
		if hint == "" {
			hint = "it is one of " + strings.Join(x.names, ", ")
		}
		return &exit{code: exitUsage, err: fmt.Errorf("there is no %s %q", x.what, x.got), hint: hint}
	}
	if i := strings.IndexAny(f.Host, `[]{}\/, `); i >= 0 {
		return &exit{code: exitUsage, err: fmt.Errorf("host %s: no host has %q in it", f.Host, f.Host[i]), hint: "* stands for any run of characters, ? for one"}
	}
	if i := strings.IndexAny(f.Sandbox, `*?[]{}\`); i >= 0 {
		return &exit{code: exitUsage, err: fmt.Errorf("sandbox %s: no sandbox has %q in its name", f.Sandbox, f.Sandbox[i]), hint: "it takes a name or an id, no pattern"}
	}
	return nil
}

// recordedHost is a glob of hosts in the form that records have: what of it is a
// name, or a label, is made canonical as names are everywhere.
func recordedHost(glob string) string {
	if !strings.ContainsAny(glob, "*?") {
		if host, err := policy.CanonicalHost(glob); err == nil {
			return host
		}
		return glob
	}
	labels := strings.Split(strings.TrimSuffix(glob, "."), ".")
	for i, label := range labels {
		if host, err := policy.CanonicalHost(label); err == nil {
			labels[i] = host
		}
	}
	return strings.Join(labels, ".")
}
