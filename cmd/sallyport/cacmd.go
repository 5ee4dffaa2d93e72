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
	cmd.AddCommand(
		&cobra.Command{Use: "init", Short: "Make the CA, unless there is one", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				dir, err := stateFolder(state)
				if err == nil {
					err = makeState(dir)
				}
				if err != nil {
					return err
				}
				ca, err := certs.LoadOrCreate(dir, certs.Options{})
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
				dir, err := stateFolder(state)
				if err == nil {
					err = needCA(dir)
				}
				if err == nil {
					err = makeState(dir) // which it only looks at: it is there
				}
				if err != nil {
					return err
				}
				ca, err := certs.Rotate(dir, certs.Options{})
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
		return noCA(dir)
	}
	if err != nil {
		return err
	}
	return put("%s", pem)
}

// needCA refuses a state folder without a CA, or that others can enter. A CA
// that is over or damaged is one: a new one is what it needs.
func needCA(dir string) error {
	_, err := closedFolder(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		_, err = certs.LoadPEM(dir, certs.Options{})
	}
	if errors.Is(err, fs.ErrNotExist) {
		return noCA(dir)
	}
	return nil
}

// noCA is the error of a state folder without a CA.
func noCA(dir string) error {
	return &exit{code: exitFailed, err: fmt.Errorf("there is no CA in the state folder %s", dir),
		hint: "make it with `sallyport ca init`, as the gateway's user, or name the gateway's folder with --state"}
}
