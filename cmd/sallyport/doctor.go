package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

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
	var lacking []string
	for _, f := range capture.Check() {
		if !f.OK && f.Needed != "" {
			lacking = append(lacking, f.Needed)
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
		text := fmt.Sprintf("%s  %-30s %s\n", mark, f.Name, f.Detail)
		if !f.OK && f.Needed != "" {
			text += fmt.Sprintf("      `sallyport %s` needs it\n", f.Needed)
		}
		if !f.OK && f.Hint != "" {
			text += fmt.Sprintf("      -> %s\n", f.Hint)
		}
		if err := put("%s", text); err != nil {
			return err
		}
	}
	switch {
	case len(lacking) == 0:
		return nil
	case !slices.Contains(lacking, "run"):
		return &exit{code: exitFailed, err: fmt.Errorf("%s missing that `sallyport serve` needs; `sallyport run` has all that it needs", counted(len(lacking), "thing"))}
	}
	return &exit{code: exitFailed, err: fmt.Errorf("%s missing that sandboxes need", counted(len(lacking), "thing"))}
}
