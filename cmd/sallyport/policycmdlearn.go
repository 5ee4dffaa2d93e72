package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"sallyport/audit"
	"sallyport/policy/policyfile"
)

// learnFlags are the flags of policy learn.
type learnFlags struct {
	suggestFlags
	run runFlags
	out string
}

func learnCommand() *cobra.Command {
	var f learnFlags
	cmd := &cobra.Command{
		Use:   "learn [flags] -- COMMAND [ARG...]",
		Short: "Run a command in report mode and print the policy that it needed",
		Long: `Run a command in a sandbox that lets through what the policy denies, records
it, and print the least rules that the session needed. Without a policy it
starts from nothing. The org's ceiling holds also in report mode.

It exits as "sallyport run" does: with the command's own code, which is 143 when
--timeout ended it, or with 125 for an error of its own.

Code that is not trusted learns what it likes: read what comes out.`,
		Example: `  sallyport policy learn --out learned.hcl -- npm ci
  sallyport policy learn --policy policy.d --sandbox ci -- make test`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exit{code: exitSandbox, err: errors.New("learn: no command"), hint: "sallyport policy learn --out learned.hcl -- npm ci"}
			}
			return f.learn(args)
		},
	}
	f.add(cmd)
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.StringVar(&f.out, "out", "", "write the rules to this file, not to standard output")
	fs.StringVar(&f.sandbox, "sandbox", "", "sandbox of the policy (default: its only one)")
	fs.BoolVar(&f.exact, "exact", false, "never join paths into a pattern")
	fs.StringVar(&f.run.state, "state", "", "folder for CA, keys and logs")
	spanVar(fs, &f.run.timeout, "timeout", "end the command after this long, by SIGTERM, which exits with 143 (0: never)")
	fs.StringArrayVar(&f.run.share, "share", nil, "give a path below /run, /tmp or /dev back to the sandbox (repeatable)")
	fs.StringArrayVar(&f.run.resolvers, "resolver", nil, "DNS server address:port for allowed names (repeatable; default: the host's)")
	fs.StringVar(&f.run.caFile, "ca-file", "", "PEM file of CAs to trust upstream, besides the system's")
	fs.StringArrayVar(&f.run.hosts, "host", nil, "NAME=ADDRESS: addresses of a name upstream (repeatable)")
	return cmd
}

// emptyPolicy is where learning starts when there is no policy.
const emptyPolicy = "sandbox \"learned\" {\n}\n"

func (f *learnFlags) learn(argv []string) error {
	paths := f.policy
	if len(paths) == 0 {
		dir, err := os.MkdirTemp("", "sallyport-learn-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) // nobody needs it after the run
		path := filepath.Join(dir, "learned.hcl")
		if err := os.WriteFile(path, []byte(emptyPolicy), 0o600); err != nil {
			return err
		}
		paths = []string{path}
	}
	doc, diags := policyfile.Load(paths, f.options())
	if diags.HasErrors() {
		return f.invalid(diags)
	}
	state, err := stateFolder(f.run.state)
	if err != nil {
		return err
	}
	before, err := runFolders(state)
	if err != nil {
		return err
	}
	out, err := f.openOut()
	if err != nil {
		return err
	}
	defer out.close()
	f.run.vars = f.vars
	f.run.policy, f.run.sandbox, f.run.report, f.run.quiet, f.run.logLevel = paths, f.sandbox, true, true, "error"
	ended := f.run.run(argv)
	var failed *exit
	if errors.As(ended, &failed) && failed.err != nil {
		return ended
	}
	after, err := runFolders(state)
	if err != nil {
		return err
	}
	var bad unreadable
	list, err := blockedIn(slices.DeleteFunc(after, func(d string) bool { return slices.Contains(before, d) }), audit.Filter{}, &bad)
	if err != nil {
		return err
	}
	if err := errors.Join(f.write(*doc, list, out), bad.failure()); err != nil {
		return err // of which the command's own code would say nothing
	}
	return ended
}

// runFolders are the logs of runs.
func runFolders(state string) ([]string, error) {
	return filepath.Glob(filepath.Join(state, "runs", "*", "audit"))
}
