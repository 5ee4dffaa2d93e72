package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"sallyport/certs"
)

// envFlags are the flags of env.
type envFlags struct {
	secretFlags
	sandbox string
	state   string
	dir     string
	at      string
	format  string
}

func envCommand() *cobra.Command {
	var f envFlags
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Write the trust files, and print the variables that make clients in a sandbox use them",
		Long: `Write ca.pem, bundle.pem and truststore.p12 to a folder that is to be mounted
into the sandbox, and print the variables that name them, with each secret's
placeholder. "run" does this by itself.`,
		Example: `  sallyport env --sandbox ci --dir ./trust --at /run/sallyport
  eval "$(sallyport env --sandbox ci --dir /run/sallyport-trust)"`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.print() },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; default: the configured policy.d)")
	fs.StringVar(&f.sandbox, "sandbox", "", "sandbox of the policy (default: its only one)")
	fs.StringVar(&f.state, "state", "", "state folder of the gateway")
	fs.StringVar(&f.dir, "dir", "", "folder to write the trust files to (required)")
	fs.StringVar(&f.at, "at", "", "where the sandbox sees that folder (default: the same path)")
	fs.StringVar(&f.format, "format", "sh", "sh, docker (an --env-file) or json")
	return cmd
}

func (f *envFlags) print() error {
	if f.dir == "" {
		return usage("env: --dir is required: a folder for the trust files, to be mounted into the sandbox")
	}
	l, snap, err := f.load()
	if err != nil {
		return err
	}
	defer l.close()
	name, err := chooseSandbox(snap.Policy.Sandboxes(), f.sandbox)
	if err != nil {
		return err
	}
	state, err := stateFolder(f.state)
	if err != nil {
		return err
	}
	if err := makeState(state); err != nil {
		return err
	}
	if l.key, err = loadKey(state); err != nil {
		return err
	}
	at := f.at
	if at == "" {
		if at, err = filepath.Abs(f.dir); err != nil {
			return err
		}
	}
	if err := writeTrust(state, f.dir); err != nil {
		return err
	}
	env := certs.TrustAt(at).Environment()
	maps.Copy(env, l.table(snap.Policy).Environment(name, l.secretsOf(name)))
	return f.write(env)
}

func writeTrust(state, dir string) error {
	ca, err := certs.LoadOrCreate(state, certs.Options{})
	if err != nil {
		return err
	}
	system, err := certs.SystemBundle()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sallyport: hint: no trust bundle of the system was found; the sandbox trusts the gateway alone:", err)
	}
	_, err = certs.WriteTrust(dir, ca, system)
	return err
}

func (f *envFlags) write(env map[string]string) error {
	switch f.format {
	case "sh":
		_, err := os.Stdout.Write(certs.EnvScript(env))
		return err
	case "docker":
		for _, k := range slices.Sorted(maps.Keys(env)) {
			fmt.Printf("%s=%s\n", k, env[k])
		}
		return nil
	case "json":
		return json.NewEncoder(os.Stdout).Encode(env)
	}
	return usage("--format %s: none of sh, docker, json", f.format)
}
