package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"sallyport/certs"
)

func caCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{Use: "ca", Short: "The certificate authority that sandboxes trust"}
	cmd.PersistentFlags().StringVar(&state, "state", "", "state folder of the gateway")
	load := func(make func(dir string, o certs.Options) (*certs.CA, error)) (*certs.CA, error) {
		dir, err := stateFolder(state)
		if err != nil {
			return nil, err
		}
		if err := makeState(dir); err != nil {
			return nil, err
		}
		return make(dir, certs.Options{})
	}
	cmd.AddCommand(
		&cobra.Command{Use: "init", Short: "Make the CA, unless there is one", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				ca, err := load(certs.LoadOrCreate)
				if err != nil {
					return err
				}
				return put("%s\n", ca.Fingerprint())
			}},
		&cobra.Command{Use: "export", Short: "Print the CA's certificate (PEM); the key never leaves its file", Args: cobra.NoArgs,
			Example: "  sallyport ca export > sallyport-ca.pem",
			RunE: func(*cobra.Command, []string) error {
				dir, err := stateFolder(state)
				if err != nil {
					return err
				}
				return exportCA(dir)
			}},
		&cobra.Command{Use: "rotate", Short: "Make a new CA; the old one stays in bundles for a while", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				ca, err := load(certs.Rotate)
				if err != nil {
					return err
				}
				fmt.Fprintln(os.Stderr, "sallyport: hint: restart gateways, and sandboxes, which trust the old CA only")
				return put("%s\n", ca.Fingerprint())
			}},
	)
	return cmd
}

// exportCA prints the certificate of the CA in a state folder. It only reads.
func exportCA(dir string) error {
	_, err := closedFolder(dir)
	var pem []byte
	if err == nil {
		pem, err = certs.LoadPEM(dir, certs.Options{})
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &exit{code: exitFailed, err: fmt.Errorf("there is no CA in the state folder %s", dir),
			hint: "make it with `sallyport ca init`, as the gateway's user, or name the gateway's folder with --state"}
	}
	if err != nil {
		return err
	}
	return put("%s", pem)
}
