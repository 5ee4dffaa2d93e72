package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/certs"
	"sallyport/gateway/capture"
)

// envFlags are the flags of env.
type envFlags struct {
	secretFlags
	sandbox string
	state   string
	dir     string
	at      string
	format  string
	service string
	proxy   string
}

func envCommand() *cobra.Command {
	var f envFlags
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Write the trust files, and print the variables that make clients in a sandbox use them",
		Long: `Write ca.pem, bundle.pem and truststore.p12 to a folder that is to be mounted
into the sandbox, and print the variables that name them, with each secret's
placeholder; and nssdb/cert9.db, which Chromium finds where it is copied to
~/.pki/nssdb. "run" does this by itself.

The CA and the credential of --proxy are those of one gateway: of the state folder
of --state, or else of the daemon file in its usual place. For a daemon whose
file is another one (serve --config), give its state folder with --state.

The format "docker" is an --env-file; "compose" is a file that makes one service
of a Compose project a sandbox: without a network, with the label, the variables
and the folder mounted.`,
		Example: `  sallyport env --sandbox ci --dir ./trust --at /run/sallyport
  eval "$(sallyport env --sandbox ci --dir /run/sallyport-trust)"
  sallyport env --sandbox ci --dir ./trust --at /run/sallyport --format compose --service job >sallyport.yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.print() },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; default: the configured policy.d)")
	varsVar(fs, &f.vars)
	fs.StringVar(&f.sandbox, "sandbox", "", "sandbox of the policy (default: its only one)")
	fs.StringVar(&f.state, "state", "", "state folder of the gateway: the same that it runs with (default: the configured one)")
	fs.StringVar(&f.dir, "dir", "", "folder to write the trust files to (required)")
	fs.StringVar(&f.at, "at", "", "where the sandbox sees that folder (default: the same path)")
	hostPortVar(fs, &f.proxy, "proxy", "explicit proxy that the sandbox uses, for the variables with its credential")
	choiceVar(fs, &f.format, "format", "", "form (docker is an --env-file)", "sh", "docker", "compose", "json")
	fs.StringVar(&f.service, "service", "app", "with --format compose: the service that is the sandbox")
	return cmd
}

func (f *envFlags) print() error {
	if f.dir == "" {
		return usage("env: --dir is required: a folder for the trust files, to be mounted into the sandbox")
	}
	if err := notDash("--dir", f.dir); err != nil {
		return err
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
	if f.proxy != "" {
		addProxy(env, f.proxy, name, l.key)
	}
	return f.write(name, at, env)
}

func writeTrust(state, dir string) error {
	_, err := certs.LoadPEM(state, certs.Options{})
	isNew := errors.Is(err, fs.ErrNotExist)
	ca, err := certs.LoadOrCreate(state, certs.Options{})
	if err != nil {
		return err
	}
	if isNew {
		fmt.Fprintln(os.Stderr, "sallyport: hint: there was no CA in", state, "and a new one was made; a gateway uses that of its own state folder")
	}
	system, err := certs.SystemBundle()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sallyport: hint: no trust bundle of the system was found; the sandbox trusts the gateway alone:", err)
	}
	_, err = certs.WriteTrust(dir, ca, system)
	return err
}

func (f *envFlags) write(sandbox, at string, env map[string]string) error {
	switch f.format {
	case "sh":
		_, err := os.Stdout.Write(certs.EnvScript(env))
		return err
	case "docker":
		for _, k := range slices.Sorted(maps.Keys(env)) {
			if err := put("%s=%s\n", k, env[k]); err != nil {
				return err
			}
		}
		return nil
	case "compose":
		return f.writeCompose(sandbox, at, env)
	}
	return json.NewEncoder(os.Stdout).Encode(env)
}

// writeCompose prints a Compose file with one service. JSON is YAML too, and
// leaves no doubt about what is a string; Compose replaces "$NAME" in strings
// unless it is written "$$NAME".
func (f *envFlags) writeCompose(sandbox, at string, env map[string]string) error {
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return err
	}
	literal := func(s string) string { return strings.ReplaceAll(s, "$", "$$") }
	escaped := make(map[string]string, len(env))
	for k, v := range env {
		escaped[k] = literal(v)
	}
	service := map[string]any{
		"network_mode": capture.NetworkNone,
		"labels":       map[string]string{capture.LabelSandbox: sandbox},
		"environment":  escaped,
		"volumes":      []map[string]any{{"type": "bind", "source": literal(dir), "target": literal(at), "read_only": true}},
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(map[string]any{"version": composeVersion, "services": map[string]any{f.service: service}})
}

// composeVersion is for Compose before 2, which needs one; later ones do not
// heed it.
const composeVersion = "3.7"
