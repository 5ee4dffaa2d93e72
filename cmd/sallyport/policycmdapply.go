package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"sallyport/policy/policyfile"
)

// applyFlags are the flags of policy apply.
type applyFlags struct {
	policyFlags
	socket     string
	generation *uint64
	narrow     bool
	commit     string
}

func applyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply [PATH|-]",
		Short: "Put a policy in force in a running gateway whose policy is pushed",
		Long: `Bring a policy to a running gateway whose daemon file says policy_push = true.
All of it is put in force and kept, so that it outlives a restart, or nothing
is: with errors they are printed, and what was in force stays. What the change
gives and takes is printed as plan prints it.

With --check-generation it is refused unless that generation is in force, so
that a job does not overwrite what another one brought since it looked. Files
named *_test.hcl are left out. Variables have the values that the daemon was
started with.

It exits with 0 when the policy is in force, with 1 when it was refused, and
with 3 when it was refused for a widening.`,
		Example: `  sallyport policy apply --check-generation 41 --commit "$(git rev-parse HEAD)" policy.d
  generate-policy | sallyport policy apply --refuse-widenings -`,
		RunE: func(_ *cobra.Command, args []string) error { return f.apply(args) },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.policy, "policy", nil, "policy file or folder, - is standard input (repeatable; default: the configured policy.d)")
	fs.BoolVar(&f.json, "json", false, "one JSON object a line")
	fs.StringVar(&f.socket, "socket", "", "control socket of the daemon")
	fs.Var(generationFlag{&f.generation}, "check-generation", "refuse unless this generation is in force")
	fs.BoolVar(&f.narrow, "refuse-widenings", false, "refuse if anything widens")
	fs.StringVar(&f.commit, "commit", "", "commit that the policy comes from, for the records")
	return cmd
}

func (f *applyFlags) apply(args []string) error {
	paths, err := f.paths(args)
	if err != nil {
		return err
	}
	files, diags := policyfile.Contents(paths, f.options())
	if diags.HasErrors() {
		return f.invalid(diags)
	}
	in := apiApply{Files: map[string]string{}, RefuseWidenings: f.narrow, Commit: f.commit}
	for name, text := range files {
		in.Files[name] = string(text)
	}
	in.CheckGeneration = f.generation
	var out apiApplied
	c := controlFlags{socket: f.socket, jsonDiagnostics: f.json}
	if err := c.call(http.MethodPost, "/v1/policy/apply", in, &out); err != nil {
		return err
	}
	if err := f.report(out); err != nil {
		return err
	}
	if !out.Applied {
		return &exit{code: exitWidenings, err: errors.New("the policy widens what is allowed; nothing was applied"),
			hint: "leave --refuse-widenings out when somebody has agreed to it"}
	}
	return nil
}

func (f *applyFlags) report(out apiApplied) error {
	p := planFlags{policyFlags: f.policyFlags}
	if f.json {
		return writeJSON(os.Stdout, out)
	}
	live := out.Live
	out.Live = nil
	if err := p.report(os.Stdout, out.plan); err != nil || !out.Applied {
		return err
	}
	cut := 0
	for _, n := range live.Cut {
		cut += n
	}
	_, err := fmt.Printf("generation %d is in force, sha256 %s; %s cut\n", out.Generation, out.SHA256, counted(cut, "live connection"))
	return err
}
