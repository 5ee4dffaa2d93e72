package age

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"filippo.io/age"
	"filippo.io/age/armor"

	"sallyport/secrets"
)

// Set puts a value, one that NewValue of package secrets takes, under c.Key
// into the file, or makes it the whole file when the key is empty. A file
// that is not there is made; one that is must open with the identity, and be
// encrypted to nobody else. It is encrypted to the identity file's own
// recipients and replaced at once, so that a reader sees the old one or the new
// one; owner, mode and armor stay, and so does a link to it. Who writes it at
// the same time is waited for, up to lockWait.
func Set(c Config, value []byte) error {
	if _, err := secrets.NewValue(value); err != nil {
		return err
	}
	if c.Key != "" && !utf8.Valid(value) {
		return errors.New("the value is no UTF-8, which a file of names and values cannot hold; give the secret a file of its own, without `key`")
	}
	return change(c, func(doc map[string]string) ([]byte, error) {
		if c.Key == "" {
			return value, nil
		}
		doc[c.Key] = string(value)
		return json.MarshalIndent(doc, "", "  ")
	})
}

// Remove takes c.Key out of the file, or removes the file when the key is
// empty.
func Remove(c Config) error {
	if c.Key == "" {
		if err := removeFile(c.Path); err != nil {
			return fmt.Errorf("age file %s: %w", c.Path, reason(err))
		}
		return nil
	}
	return change(c, func(doc map[string]string) ([]byte, error) {
		if _, ok := doc[c.Key]; !ok {
			return nil, fmt.Errorf("age file %s: has no key %q", c.Path, c.Key)
		}
		delete(doc, c.Key)
		return json.MarshalIndent(doc, "", "  ")
	})
}

// removeFile removes the file that path stands for.
func removeFile(path string) error {
	unlock, err := lock(path)
	if err != nil {
		return err
	}
	defer unlock()
	if path, err = target(path); err != nil {
		return err
	}
	return os.Remove(path)
}

// change rewrites the file as edit says.
func change(c Config, edit func(map[string]string) ([]byte, error)) error {
	if _, err := New(c); err != nil {
		return err
	}
	identities, err := readIdentities(c.Identity)
	if err != nil {
		return err
	}
	recipients, err := recipients(identities)
	if err != nil {
		return fmt.Errorf("age identity %s: %w", c.Identity, err)
	}
	unlock, err := lock(c.Path)
	if err != nil {
		return fmt.Errorf("age file %s: %w", c.Path, err)
	}
	defer unlock()
	doc, isArmored, err := current(c, identities)
	if err != nil {
		return err
	}
	plain, err := edit(doc)
	if err != nil {
		return err
	}
	out, err := encrypted(plain, isArmored, recipients)
	if err != nil {
		return fmt.Errorf("age file %s: %w", c.Path, err)
	}
	if err := replace(c.Path, out); err != nil {
		return fmt.Errorf("age file %s: %w", c.Path, reason(err))
	}
	return nil
}

// current returns what the file holds now, nothing if it is empty or not there,
// and whether it has an armor.
func current(c Config, identities []age.Identity) (doc map[string]string, isArmored bool, err error) {
	doc = map[string]string{}
	info, err := os.Stat(c.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return doc, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("age file %s: %w", c.Path, reason(err))
	case info.Mode().IsRegular() && info.Size() == 0:
		return doc, false, nil
	}
	plain, err := decrypt(c.Path, identities)
	if err != nil {
		return nil, false, err
	}
	if c.Key != "" {
		if doc, err = parse(plain); err != nil {
			return nil, false, fmt.Errorf("age file %s: %w", c.Path, err)
		}
	}
	isArmored, err = noOthers(c, identities)
	return doc, isArmored, err
}

func encrypted(plain []byte, isArmored bool, to []age.Recipient) ([]byte, error) {
	var out bytes.Buffer
	var dst io.Writer = &out
	end := func() error { return nil }
	if isArmored {
		a := armor.NewWriter(&out)
		dst, end = a, a.Close
	}
	w, err := age.Encrypt(dst, to...)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	err = errors.Join(w.Close(), end())
	return out.Bytes(), err
}

// recipients returns those to whom identities belong.
func recipients(identities []age.Identity) (list []age.Recipient, err error) {
	for _, i := range identities {
		switch i := i.(type) {
		case *age.X25519Identity:
			list = append(list, i.Recipient())
		case *age.HybridIdentity:
			list = append(list, i.Recipient())
		case pluginIdentity:
			list = append(list, i.Recipient())
		default:
			return nil, errors.New("holds an identity that cannot be written to")
		}
	}
	return list, nil
}
