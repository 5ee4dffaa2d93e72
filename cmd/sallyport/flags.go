package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// longFlags lets a long flag be written with one dash too, as -policy for
// --policy, up to the end of the flags.
func longFlags(root *cobra.Command, args []string) []string {
	command, _, err := root.Find(args)
	if err != nil {
		command = root
	}
	out := make([]string, len(args))
	copy(out, args)
	for i, a := range out {
		if a == "--" {
			break
		}
		if len(a) < 3 || a[0] != '-' || a[1] == '-' {
			continue
		}
		name, _, _ := strings.Cut(a[1:], "=")
		if len(name) > 1 && (command.Flags().Lookup(name) != nil || command.InheritedFlags().Lookup(name) != nil) {
			out[i] = "-" + a
		}
	}
	return out
}
