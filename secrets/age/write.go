package age

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"

	"sallyport/secrets"
)

// Set puts a value, one that NewValue of package secrets takes, under c.Key
// into the file, or makes it the whole file when the key is empty. A file
// that is not there is made; one that is must open with the identity. It is
// encrypted to the identity file's own recipients and replaced at once, so
// that a reader sees the old one or the new one.
func Set(c Config, value []byte) error {
	if _, err := secrets.NewValue(value); err != nil {
		return err
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
		if err := os.Remove(c.Path); err != nil {
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
	doc := map[string]string{}
	if _, err := os.Stat(c.Path); c.Key != "" && !errors.Is(err, fs.ErrNotExist) {
		plain, err := decrypt(c.Path, identities)
		if err != nil {
			return err
		}
		if doc, err = parse(plain); err != nil {
			return fmt.Errorf("age file %s: %w", c.Path, err)
		}
	}
	plain, err := edit(doc)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, recipients...)
	if err != nil {
		return fmt.Errorf("age file %s: %w", c.Path, err)
	}
	if _, err := w.Write(plain); err != nil {
		return fmt.Errorf("age file %s: %w", c.Path, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("age file %s: %w", c.Path, err)
	}
	if err := replace(c.Path, out.Bytes()); err != nil {
		return fmt.Errorf("age file %s: %w", c.Path, reason(err))
	}
	return nil
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

// replace writes a file beside path, makes it durable and renames it over
// path.
func replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	if _, err := f.Write(b); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
