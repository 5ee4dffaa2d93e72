package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// longFlags lets a long flag be written with one dash too, as -policy for
// --policy, up to the end of the flags. Of run, that is where the command
// begins, whose flags are its own.
func longFlags(root *cobra.Command, args []string) []string {
	command, _, err := root.Find(args)
	if err != nil {
		command = root
	}
	command.InitDefaultHelpFlag() // as -help too
	command.InitDefaultVersionFlag()
	out := make([]string, len(args))
	copy(out, args)
	words := 0
	for i := 0; i < len(out); i++ {
		a := out[i]
		if len(a) < 2 || a[0] != '-' {
			words++
			if command.Name() == "run" && words > 1 {
				break
			}
			continue
		}
		if a == "--" {
			break
		}
		name, _, valued := strings.Cut(strings.TrimLeft(a, "-"), "=")
		f := longFlag(command, name)
		if f == nil {
			continue
		}
		if a[1] != '-' {
			out[i] = "-" + a
		}
		if !valued && f.NoOptDefVal == "" {
			i++ // the next is its value, whatever it looks like
		}
	}
	return out
}

// longFlag finds a flag of a command by its long name; a letter is none.
func longFlag(command *cobra.Command, name string) *pflag.Flag {
	if len(name) < 2 {
		return nil
	}
	if f := command.Flags().Lookup(name); f != nil {
		return f
	}
	return command.InheritedFlags().Lookup(name)
}
