package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// validateFlags are the flags of policy validate.
type validateFlags struct {
	policyFlags
	strict   bool
	quiet    bool
	expiring string
}

func validateCommand() *cobra.Command {
	var f validateFlags
	cmd := &cobra.Command{
		Use:   "validate [PATH...]",
		Short: "Report every error of a policy, and what its author probably did not mean",
		Long: `Report every error of a policy and, as warnings: rules that add nothing or can
never allow, methods that are nearly one that is known, wildcards under a public suffix, secrets that no rule uses, groups
that nobody uses, rules without a test, rules that expire soon, and allow rules
that are wider than the comment above them says.

It exits with 0 when the policy loads, with 1 when it does not; with --strict a
warning is an error.`,
		Example: `  sallyport policy validate policy.d
  sallyport policy validate --strict --json policy.d`,
		RunE: func(_ *cobra.Command, args []string) error { return f.validate(args) },
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.strict, "strict", false, "treat warnings as errors")
	cmd.Flags().BoolVar(&f.quiet, "quiet", false, "print errors alone; warnings are counted")
	cmd.Flags().StringVar(&f.expiring, "expiring", "14d", "report rules that expire within this time")
	return cmd
}

func (f *validateFlags) validate(args []string) error {
	within, err := duration(f.expiring)
	if err != nil {
		return usage("--expiring %s: not a duration such as 14d", f.expiring)
	}
	paths, err := f.paths(args)
	if err != nil {
		return err
	}
	bundle, diags := policyfile.LoadBundle(paths, 1, f.options())
	if diags.HasErrors() {
		return f.invalid(diags)
	}
	warnings := append(bundle.Set.Lint(policy.LintOptions{Now: time.Now(), Within: within}), bundle.CommentProblems()...)
	warnings = append(warnings, untested(bundle, f.testFiles(args))...)
	if f.quiet && !f.strict {
		return f.summary(bundle, diags.Len()+len(warnings))
	}
	if f.strict {
		for i := range warnings {
			warnings[i].Severity = policy.Error
		}
		diags.Strict()
	}
	diags.AddProblems(warnings)
	if err := f.print(diags); err != nil {
		return err
	}
	if diags.HasErrors() {
		return &exit{code: exitFailed, err: errors.New("the policy has warnings, and --strict makes errors of them")}
	}
	return f.summary(bundle, diags.Len())
}

// summary says that the policy is valid, and of how much.
func (f *validateFlags) summary(b *policyfile.Bundle, warnings int) error {
	s := b.Set
	if f.json {
		return writeJSON(os.Stdout, map[string]any{"valid": true, "sha256": s.SHA256(), "sandboxes": len(s.Sandboxes()),
			"rules": len(s.AllRules()), "secrets": len(s.Secrets()), "tests": len(b.Tests), "warnings": warnings})
	}
	_, err := fmt.Printf("valid: %s, %s, %s, %s; %s\n", counted(len(s.Sandboxes()), "sandbox block"), counted(len(s.AllRules()), "rule"),
		counted(len(s.Secrets()), "secret"), counted(len(b.Tests), "test"), counted(warnings, "warning"))
	return err
}

// untested reports the rules that no test of the policy meets. files are where
// its tests may stand.
func untested(b *policyfile.Bundle, files string) []policy.Problem {
	if len(b.Tests) == 0 {
		return []policy.Problem{{Severity: policy.Warning, Summary: "the policy has no tests",
			Detail: "A test says what a sandbox may do and what it may not, and fails when that changes.",
			Hint:   `add test "…" { sandbox = "…" allow = ["GET https://…"] deny = ["POST https://…"] } to ` + files}}
	}
	cov := newTrial(b).all().coverage
	var out []policy.Problem
	for _, r := range b.Set.BindingRules() {
		if !cov.met[r.Pos] {
			cov.met[r.Pos] = true // one report for all rules that a dynamic block makes
			out = append(out, policy.Problem{Pos: r.Pos, Severity: policy.Warning, Summary: r.Title() + ": no test meets it",
				Hint: "add a request that it decides to a test"})
		}
	}
	return out
}
