// Command plugin is an age plugin as hardware keys have one. Its identities
// are native ones, behind a word that says how it behaves.
package main

import (
	"bytes"
	"errors"
	"log"
	"os"
	"time"

	"filippo.io/age"
	"filippo.io/age/plugin"
)

func main() {
	p, err := plugin.New("lab")
	if err != nil {
		log.Fatal(err)
	}
	parse := func(data []byte) (*age.X25519Identity, error) {
		how, key, _ := bytes.Cut(data, []byte(":"))
		switch string(how) {
		case "hang":
			time.Sleep(30 * time.Second)
		case "ask":
			if _, err := p.RequestValue("the PIN", true); err != nil {
				return nil, errors.New("a PIN is needed")
			}
		}
		return age.ParseX25519Identity(string(key))
	}
	p.HandleIdentity(func(data []byte) (age.Identity, error) { return parse(data) })
	p.HandleIdentityAsRecipient(func(data []byte) (age.Recipient, error) {
		id, err := parse(data)
		if err != nil {
			return nil, err
		}
		return id.Recipient(), nil
	})
	os.Exit(p.Main())
}
