package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, test, compare and explain policy files",
		Example: `  sallyport policy validate policy.d
  sallyport policy test policy.d
  sallyport policy explain --policy policy.d --sandbox ci 'POST https://api.github.com/repos/acme/app/issues'`,
	}
	cmd.AddCommand(validateCommand(), fmtCommand(), casesCommand(), planCommand(), applyCommand(), explainCommand(), showCommand(), suggestCommand(), learnCommand(), schemaCommand())
	return cmd
}

// policyFlags name a policy. Every command about policy has them.
type policyFlags struct {
	policy []string
	vars   []string
	json   bool

	stdin []byte // what the path - stands for, once it has been read
}

func (f *policyFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.policy, "policy", nil, "policy file or folder, - is standard input (repeatable; default: the configured policy.d)")
	varsVar(fs, &f.vars)
	fs.BoolVar(&f.json, "json", false, "one JSON object a line")
}

// paths are the policy's, as arguments, as flags or as configured.
func (f *policyFlags) paths(args []string) ([]string, error) {
	if list := append(append([]string{}, f.policy...), args...); len(list) > 0 {
		return list, f.readStdin(list)
	}
	p, err := userPaths()
	if err != nil {
		return nil, err
	}
	return configuredPolicy(p)
}

func (f *policyFlags) options() policyfile.Options {
	o := policyOptions()
	o.Vars, o.Stdin = variables(f.vars), f.stdin
	return o
}

// readStdin reads standard input where one of the paths is -.
func (f *policyFlags) readStdin(paths []string) (err error) {
	if f.stdin == nil {
		f.stdin, err = policyInput(paths, os.Stdin)
	}
	return err
}

// policyInput reads r to its end where one of the paths of a policy is -. It
// returns nil where none is.
func policyInput(paths []string, r io.Reader) ([]byte, error) {
	if !slices.Contains(paths, policyfile.Stdin) {
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(r, policyfile.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return text, nil
}

// variables are the values of variable blocks, from NAME=VALUE flags.
func variables(flags []string) map[string]string {
	out := map[string]string{}
	for _, kv := range flags {
		name, value, _ := strings.Cut(kv, "=") // the flag has seen that there is one
		out[name] = value
	}
	return out
}

// bundle loads a policy with its tests. Its warnings are not printed; errors
// are.
func (f *policyFlags) bundle(args []string) (*policyfile.Bundle, error) {
	paths, err := f.paths(args)
	if err != nil {
		return nil, err
	}
	b, diags := policyfile.LoadBundle(paths, 1, f.options())
	if diags.HasErrors() {
		return nil, f.invalid(diags)
	}
	return b, nil
}

// invalid prints diagnostics and returns the error that they amount to.
func (f *policyFlags) invalid(diags *policyfile.Diagnostics) error {
	if err := f.print(diags); err != nil {
		return err
	}
	return &exit{code: exitFailed, err: errors.New("the policy has errors")}
}

// print writes diagnostics: for programs to stdout, for people to stderr.
func (f *policyFlags) print(diags *policyfile.Diagnostics) error {
	if f.json {
		return diags.WriteJSON(os.Stdout)
	}
	return diags.WriteText(os.Stderr, useColor(os.Stderr))
}

// writeJSON writes one object on one line.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// jsonRule is a rule as programs are told of it.
type jsonRule struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Title string `json:"title"`
}

func ruleJSON(r *policy.Rule) *jsonRule {
	if r == nil {
		return nil
	}
	return &jsonRule{File: r.Pos.File, Line: r.Pos.Line, Title: r.Title()}
}

// counted is a number with its noun: "1 rule", "2 rules".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
