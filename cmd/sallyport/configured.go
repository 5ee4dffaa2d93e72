package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// configured is the daemon file that serve reads when none is named, or an
// empty one where there is none: what commands beside the daemon take for granted
// stands there.
func configured(p paths) (*daemonFile, error) {
	path := filepath.Join(p.config, "sallyport.hcl")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return &daemonFile{}, nil
	}
	file, _, diags := readDaemonFile(path)
	if diags.HasErrors() {
		return nil, &exit{code: exitFailed, err: fmt.Errorf("%s: %w", path, diags), hint: "name what it would say with --policy and --state, or mend it"}
	}
	return file, nil
}

// configuredPolicy is the policy of the daemon file, or else policyFolder.
func configuredPolicy(p paths) ([]string, error) {
	file, err := configured(p)
	if err != nil {
		return nil, err
	}
	if len(file.Policy) > 0 {
		return file.Policy, nil
	}
	return policyFolder(p)
}

// policyFolder is the folder of policies of the user's configuration, or an
// error that says how to get one.
func policyFolder(p paths) ([]string, error) {
	dir := filepath.Join(p.config, "policy.d")
	if _, err := os.Stat(dir); err == nil {
		return []string{dir}, nil
	}
	return nil, &exit{code: exitFailed, err: fmt.Errorf("no policy: no --policy was given and there is no %s; without a policy nothing is allowed", dir),
		hint: "sallyport init writes a starter policy; then: sallyport run --policy sallyport.hcl -- COMMAND"}
}

// stateFolder is the folder that a flag names, or that of the daemon file, or
// the user's own.
func stateFolder(flag string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	p, err := userPaths()
	if err != nil {
		return "", err
	}
	return configuredState(p)
}

func configuredState(p paths) (string, error) {
	file, err := configured(p)
	if err != nil || file.State == "" {
		return p.state, err
	}
	return file.State, nil
}
