package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sallyport/policy"
	"sallyport/secrets"
	"sallyport/secrets/age"
)

// setCommand puts a value where a secret is read from.
func (f *secretFlags) setCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{Use: "set NAME", Short: "Put a value into the age file that a secret is read from",
		Long: `Put a value into the encrypted file of a source of kind "age". The value comes
from standard input or a file, never from the command line, which others can see.
Other kinds are written with their own tools.`,
		Example: "  sallyport secret set OPENAI_API_KEY < key.txt\n  pass show openai | sallyport secret set OPENAI_API_KEY",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.change(args[0], "set", func(c age.Config) error {
				value, err := readValue(file)
				if err != nil {
					return err
				}
				return age.Set(c, value)
			})
		}}
	cmd.Flags().StringVar(&file, "file", "", "read the value from this file (default: standard input)")
	return cmd
}

// rmCommand takes a value away.
func (f *secretFlags) rmCommand() *cobra.Command {
	return &cobra.Command{Use: "rm NAME", Short: "Take a value out of the age file that a secret is read from",
		Example: "  sallyport secret rm OPENAI_API_KEY", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.change(args[0], "rm", age.Remove) }}
}

// change writes the source of a secret, if it is of a kind that is written.
func (f *secretFlags) change(name, verb string, write func(age.Config) error) error {
	l, snap, err := f.load()
	if err != nil {
		return err
	}
	defer l.close()
	s := snap.Policy.Secret(name)
	if s == nil {
		return noSecret(name)
	}
	if s.Source.Kind != "age" {
		return &exit{code: exitFailed, err: fmt.Errorf("secret %q: its source is of kind %q, which `secret %s` does not write", name, s.Source.Kind, verb),
			hint: writtenElsewhere(s.Source)}
	}
	if err := write(ageConfig(s.Source.Attrs)); err != nil {
		return &exit{code: exitFailed, err: fmt.Errorf("secret %q: %w", name, err)}
	}
	return put("%-5s %s (%s, %s)\n", verb, name, s.Source.Kind, s.Pos)
}

func noSecret(name string) error {
	return &exit{code: exitFailed, err: fmt.Errorf("the policy has no secret %q", name), hint: "sallyport secret ls lists them"}
}

// writtenElsewhere says how the value of another kind is changed.
func writtenElsewhere(s policy.Source) string {
	a := attributes(s.Attrs)
	switch s.Kind {
	case "env":
		return "set the variable " + a.text("name") + " of the gateway"
	case "file":
		return "write the file " + a.text("path")
	}
	return `only sources of kind "age" are written; use the tool of the other one`
}

// readValue reads a value from a file, or from standard input where it is
// not shown.
func readValue(file string) ([]byte, error) {
	var b []byte
	var err error
	switch {
	case file != "":
		var f *os.File
		if f, err = os.Open(file); err != nil {
			return nil, err
		}
		defer f.Close()
		b, err = io.ReadAll(io.LimitReader(f, secrets.MaxValue+2))
	case term.IsTerminal(int(os.Stdin.Fd())):
		fmt.Fprint(os.Stderr, "value (not shown): ")
		b, err = term.ReadPassword(int(os.Stdin.Fd()))
		fmt.Fprintln(os.Stderr)
	default:
		b, err = io.ReadAll(io.LimitReader(os.Stdin, secrets.MaxValue+2))
	}
	if err != nil {
		return nil, fmt.Errorf("read the value: %w", err)
	}
	if b = bytes.TrimSuffix(b, []byte("\n")); len(b) == 0 {
		return nil, errors.New("the value is empty")
	}
	return b, nil
}
