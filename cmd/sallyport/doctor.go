package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"sallyport/gateway/capture"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host has and lacks, and what to do about it",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return doctor(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object for each finding")
	return cmd
}

func doctor(asJSON bool) error {
	lacking := 0
	for _, f := range capture.Check() {
		if !f.OK && f.Needed != "" {
			lacking++
		}
		if asJSON {
			if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
				return err
			}
			continue
		}
		mark := "ok  "
		switch {
		case !f.OK && f.Needed != "":
			mark = "FAIL"
		case !f.OK:
			mark = "note"
		}
		fmt.Printf("%s  %-28s %s\n", mark, f.Name, f.Detail)
		if !f.OK && f.Needed != "" {
			fmt.Printf("      `sallyport %s` needs it\n", f.Needed)
		}
		if !f.OK && f.Hint != "" {
			fmt.Printf("      -> %s\n", f.Hint)
		}
	}
	if lacking > 0 {
		return &exit{code: exitFailed, err: fmt.Errorf("%d things that sandboxes need are missing", lacking)}
	}
	return nil
}
