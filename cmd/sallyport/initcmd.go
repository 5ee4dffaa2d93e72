package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/policy/policyfile"
)

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [PATH]",
		Short: "Write a commented starter policy and say what to do next",
		Long: `Write a commented starter policy to a file, ./sallyport.hcl unless another is
named, and say what to do next; to standard output where it is called -.`,
		Example: `  sallyport init
  sallyport init policy/agents.hcl
  sallyport init - | ssh gateway tee /etc/sallyport/policy.d/agents.hcl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := "sallyport.hcl"
			if len(args) == 1 {
				path = args[0]
			}
			return writeStarter(path)
		},
	}
}

func writeStarter(path string) error {
	if path == dash {
		return put("%s", policyfile.Starter())
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() || strings.HasSuffix(path, "/") {
		path = filepath.Join(path, "sallyport.hcl")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return &exit{code: exitFailed, err: fmt.Errorf("%s is there already", path), hint: "name another path: sallyport init PATH"}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(policyfile.Starter())
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return put(`%[1]s is written. Next:
  1. read it, and change what the sandbox may reach
  2. sallyport secret check --policy %[1]s --all        can the secrets be had?
  3. sallyport run --policy %[1]s -- bash               a shell in the sandbox
  4. sallyport tail -f --blocked                        what was refused, in another terminal
`, path)
}
