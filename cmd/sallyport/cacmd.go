package main

import (
	"fmt"
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
				if err == nil {
					fmt.Println(ca.Fingerprint())
				}
				return err
			}},
		&cobra.Command{Use: "export", Short: "Print the CA's certificate (PEM); the key never leaves its file", Args: cobra.NoArgs,
			Example: "  sallyport ca export > sallyport-ca.pem",
			RunE: func(*cobra.Command, []string) error {
				ca, err := load(certs.LoadOrCreate)
				if err == nil {
					_, err = os.Stdout.Write(ca.PEM())
				}
				return err
			}},
		&cobra.Command{Use: "rotate", Short: "Make a new CA; the old one stays in bundles for a while", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				ca, err := load(certs.Rotate)
				if err == nil {
					fmt.Println(ca.Fingerprint())
					fmt.Fprintln(os.Stderr, "sallyport: hint: restart gateways, and sandboxes, which trust the old CA only")
				}
				return err
			}},
	)
	return cmd
}
