package main

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"sallyport/gateway"
)

// secretFlags are the flags of the secret commands.
type secretFlags struct {
	policy []string
	vars   []string
	socket string
	json   bool
	all    bool
}

func secretCommand() *cobra.Command {
	var f secretFlags
	cmd := &cobra.Command{Use: "secret", Short: "Where secrets come from, whether they can be had, how old they are; never a value"}
	cmd.PersistentFlags().StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; default: the configured policy.d)")
	varsVar(cmd.PersistentFlags(), &f.vars)
	ls := &cobra.Command{Use: "ls", Short: "List the secrets of the policy: source, hosts, placeholder, and age in a running daemon", Args: cobra.NoArgs,
		Example: "  sallyport secret ls --policy sallyport.hcl",
		RunE:    func(*cobra.Command, []string) error { return f.list() }}
	ls.Flags().BoolVar(&f.json, "json", false, "one JSON object for each secret")
	ls.Flags().StringVar(&f.socket, "socket", "", "control socket of the daemon whose ages and errors are shown")
	check := &cobra.Command{Use: "check NAME...", Short: "Fetch secrets from this place, and say whether it worked",
		Example: "  sallyport secret check --policy sallyport.hcl OPENAI_API_KEY\n  sallyport secret check --all",
		RunE:    func(_ *cobra.Command, names []string) error { return f.check(names) }}
	check.Flags().StringVar(&f.socket, "socket", "", "control socket of the daemon that fetches them in the stead of this process")
	check.Flags().BoolVar(&f.all, "all", false, "every secret of the policy")
	cmd.AddCommand(ls, check, f.setCommand(), f.rmCommand())
	return cmd
}

// load reads the policy without putting it in force.
func (f *secretFlags) load() (*loader, *gateway.Snapshot, error) {
	paths := f.policy
	if len(paths) == 0 {
		p, err := userPaths()
		if err != nil {
			return nil, nil, err
		}
		if paths, err = configuredPolicy(p); err != nil {
			return nil, nil, err
		}
	}
	l := &loader{paths: paths, vars: variables(f.vars), key: make([]byte, 32), log: hclog.NewNullLogger()}
	snap, diags := l.load()
	if err := diagnosed(diags); err != nil {
		return nil, nil, err
	}
	return l, snap, nil
}

// checkTime bounds the fetch of one secret. It is longer than what a store gives
// a source, which then says itself that it had no answer.
const checkTime = 40 * time.Second

func (f *secretFlags) check(names []string) error {
	l, snap, err := f.load()
	if err != nil {
		return err
	}
	defer l.close()
	if f.all {
		for _, s := range snap.Policy.Secrets() {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return usage("secret check: no NAME was given, and not --all")
	}
	failed := 0
	for _, name := range names {
		s := snap.Policy.Secret(name)
		if s == nil {
			return noSecret(name)
		}
		err := f.fetch(snap.Secrets, name)
		if err != nil {
			failed++
			err = put("FAIL  %s (%s, %s): %v\n", name, s.Source.Kind, s.Pos, err)
		} else {
			err = put("ok    %s (%s, %s)\n", name, s.Source.Kind, s.Pos)
		}
		if err != nil {
			return err
		}
	}
	if failed > 0 {
		return &exit{code: exitFailed, err: fmt.Errorf("%d of %d secrets cannot be had", failed, len(names))}
	}
	return nil
}
