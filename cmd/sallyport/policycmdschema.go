package main

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"sallyport/policy/policyfile"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the language's blocks and attributes as JSON, for editors",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			enc := json.NewEncoder(os.Stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(policyfile.Vocabulary(policyOptions()))
		},
	}
}
