package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport/audit"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Prove the audit log"}
	var state string
	var asJSON bool
	verify := &cobra.Command{
		Use:   "verify [FOLDER...]",
		Short: "Check the hash chain of logs, and name the first record that breaks it",
		Example: `  sallyport audit verify
  sallyport audit verify --json /var/lib/sallyport/audit`,
		RunE: func(_ *cobra.Command, dirs []string) error { return verifyLogs(state, dirs, asJSON) },
	}
	verify.Flags().StringVar(&state, "state", "", "state folder of the gateway")
	verify.Flags().BoolVar(&asJSON, "json", false, "one JSON object for each log")
	cmd.AddCommand(verify)
	return cmd
}

func verifyLogs(state string, dirs []string, asJSON bool) error {
	if len(dirs) == 0 {
		s, err := stateFolder(state)
		if err != nil {
			return err
		}
		for _, g := range logFolders(s) {
			m, err := filepath.Glob(g)
			if err != nil {
				return err
			}
			dirs = append(dirs, m...)
		}
		if len(dirs) == 0 {
			return &exit{code: exitFailed, err: fmt.Errorf("no audit log below %s", s), hint: "name the gateway's state folder with --state"}
		}
	}
	failed := false
	for _, dir := range dirs {
		report, err := audit.Verify(dir)
		var broken *audit.Break
		switch {
		case err != nil && !errors.As(err, &broken):
			return err
		case asJSON:
			if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
				return err
			}
		case broken != nil:
			fmt.Printf("%s: BROKEN: %v\n", dir, broken)
		default:
			fmt.Printf("%s: ok: %d records in %d segments, seq %d to %d, head %s\n", dir, report.Records, report.Segments, report.FirstSeq, report.LastSeq, report.Head)
		}
		failed = failed || broken != nil
	}
	if failed {
		return &exit{code: exitFailed}
	}
	return nil
}
