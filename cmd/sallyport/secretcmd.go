package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"sallyport/gateway"
)

// secretFlags are the flags of the secret commands.
type secretFlags struct {
	policy []string
	json   bool
	all    bool
}

func secretCommand() *cobra.Command {
	var f secretFlags
	cmd := &cobra.Command{Use: "secret", Short: "Say where secrets come from and whether they can be had; never a value"}
	cmd.PersistentFlags().StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; default: the configured policy.d)")
	ls := &cobra.Command{Use: "ls", Short: "List the secrets of the policy: source, hosts, placeholder", Args: cobra.NoArgs,
		Example: "  sallyport secret ls --policy sallyport.hcl",
		RunE:    func(*cobra.Command, []string) error { return f.list() }}
	ls.Flags().BoolVar(&f.json, "json", false, "one JSON object for each secret")
	check := &cobra.Command{Use: "check NAME...", Short: "Fetch secrets from this place, and say whether it worked",
		Example: "  sallyport secret check --policy sallyport.hcl OPENAI_API_KEY\n  sallyport secret check --all",
		RunE:    func(_ *cobra.Command, names []string) error { return f.check(names) }}
	check.Flags().BoolVar(&f.all, "all", false, "every secret of the policy")
	cmd.AddCommand(ls, check)
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
	l := &loader{paths: paths, key: make([]byte, 32), log: hclog.NewNullLogger()}
	snap, diags := l.load()
	if err := diagnosed(diags); err != nil {
		return nil, nil, err
	}
	return l, snap, nil
}

// secretLine is one line of secret ls.
type secretLine struct {
	Name        string   `json:"name"`
	Source      string   `json:"source"`
	Hosts       []string `json:"hosts"`
	Placeholder string   `json:"placeholder"`
	Declared    string   `json:"declared"` // file:line
}

func (f *secretFlags) list() error {
	l, snap, err := f.load()
	if err != nil {
		return err
	}
	defer l.close()
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	if !f.json {
		fmt.Fprintln(w, "NAME\tSOURCE\tHOSTS\tPLACEHOLDER\tDECLARED")
	}
	for _, s := range snap.Policy.Secrets() {
		line := secretLine{s.Name, s.Source.Kind, s.Hosts, s.Placeholder, s.Pos.String()}
		if line.Placeholder == "" {
			line.Placeholder = "$" + s.Name
		}
		if f.json {
			if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", line.Name, line.Source, strings.Join(line.Hosts, ","), line.Placeholder, line.Declared)
	}
	return w.Flush()
}

// checkTime bounds the fetch of one secret.
const checkTime = 30 * time.Second

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
			return &exit{code: exitFailed, err: fmt.Errorf("the policy has no secret %q", name), hint: "sallyport secret ls lists them"}
		}
		ctx, cancel := context.WithTimeout(context.Background(), checkTime)
		err := snap.Secrets.Check(ctx, name)
		cancel()
		if err != nil {
			failed++
			fmt.Printf("FAIL  %s (%s, %s): %v\n", name, s.Source.Kind, s.Pos, err)
			continue
		}
		fmt.Printf("ok    %s (%s, %s)\n", name, s.Source.Kind, s.Pos)
	}
	if failed > 0 {
		return &exit{code: exitFailed, err: fmt.Errorf("%d of %d secrets cannot be had", failed, len(names))}
	}
	return nil
}
