// Package age takes secrets from a file that is encrypted with age, and
// writes such files.
//
// A file holds either one value, or a JSON object of names and values, of
// which a key picks one.
package age

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"filippo.io/age"

	"sallyport/secrets"
)

const (
	// reread is how long a value is good: a file does not say when it changes.
	reread = time.Minute
	// maxFile is the longest encrypted file, in bytes.
	maxFile = 4 << 20
	// maxIdentity is the longest identity file, in bytes.
	maxIdentity = 64 << 10
	armored     = "-----BEGIN AGE ENCRYPTED FILE-----"
)

// Config says which file, which identity opens it, and which of its values.
type Config struct {
	Path     string // absolute
	Identity string // absolute path of a file of identities, which only its owner may read
	Key      string // "": the file is the value
}

type source struct {
	c    Config
	busy chan struct{} // capacity 1: holds something while the file is being opened
}

// New makes a source of c. The files are read at each fetch, not by New.
func New(c Config) (secrets.Source, error) {
	for _, f := range []struct{ name, path string }{{"path", c.Path}, {"identity", c.Identity}} {
		switch {
		case f.path == "":
			return nil, fmt.Errorf("age: %s is missing", f.name)
		case !filepath.IsAbs(f.path):
			return nil, fmt.Errorf("age: %s %q is not absolute", f.name, f.path)
		}
	}
	return &source{c: c, busy: make(chan struct{}, 1)}, nil
}

// Fetch decrypts the file.
func (s *source) Fetch(ctx context.Context) (secrets.Fetched, error) {
	identities, err := readIdentities(s.c.Identity)
	if err != nil {
		return secrets.Fetched{}, err
	}
	plain, err := s.within(ctx, func() ([]byte, error) { return decrypt(s.c.Path, identities) })
	if err != nil {
		return secrets.Fetched{}, err
	}
	v, err := pick(plain, s.c.Key)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("age file %s: %w", s.c.Path, err)
	}
	return secrets.Fetched{Value: v, TTL: reread}, nil
}

func pick(plain []byte, key string) (secrets.Value, error) {
	if key == "" {
		return secrets.NewValue(plain)
	}
	doc, err := parse(plain)
	if err != nil {
		return secrets.Value{}, err
	}
	text, ok := doc[key]
	if !ok {
		return secrets.Value{}, fmt.Errorf("has no key %q", key)
	}
	v, err := secrets.NewValue([]byte(text))
	if err != nil {
		return secrets.Value{}, fmt.Errorf("key %q: %w", key, err)
	}
	return v, nil
}

// parse reads an object of names and values. Its error quotes nothing.
// What JSON cannot hold, and would be read as another value, is refused.
func parse(plain []byte) (map[string]string, error) {
	var doc map[string]string
	if json.Unmarshal(plain, &doc) != nil || doc == nil {
		return nil, errors.New("does not hold a JSON object of strings")
	}
	if !utf8.Valid(plain) {
		return nil, errors.New("holds bytes that are no UTF-8, which JSON cannot hold")
	}
	replaced := strings.Contains(string(plain), "\uFFFD") || strings.Contains(strings.ToLower(string(plain)), `\ufffd`)
	for _, text := range doc {
		if !replaced && strings.ContainsRune(text, utf8.RuneError) {
			return nil, errors.New("holds half a surrogate pair, which stands for no character")
		}
	}
	return doc, nil
}

// readIdentities reads a file of identities. One that others may read is
// refused.
func readIdentities(path string) ([]age.Identity, error) {
	f, err := secrets.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("age identity %s: %w", path, reason(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("age identity %s: %w", path, reason(err))
	case info.Mode().Perm()&0o007 != 0:
		return nil, fmt.Errorf("age identity %s: mode %#o lets others read it; use chmod 600", path, info.Mode().Perm())
	}
	identities, err := parseIdentities(io.LimitReader(f, maxIdentity))
	if err != nil {
		// The library's error can quote a line of the file.
		return nil, fmt.Errorf("age identity %s: holds something that is no identity", path)
	}
	return identities, nil
}

// parseIdentities reads native identities and those of plugins.
func parseIdentities(r io.Reader) ([]age.Identity, error) {
	var list []age.Identity
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, pluginPrefix):
			i, err := newPluginIdentity(line)
			if err != nil {
				return nil, err
			}
			list = append(list, i)
		default:
			native, err := age.ParseIdentities(strings.NewReader(line))
			if err != nil {
				return nil, err
			}
			list = append(list, native...)
		}
	}
	if len(list) == 0 && lines.Err() == nil {
		return nil, errors.New("no identity")
	}
	return list, lines.Err()
}

func decrypt(path string, identities []age.Identity) ([]byte, error) {
	f, err := secrets.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("age file %s: %w", path, reason(err))
	}
	defer f.Close()
	src, _ := opened(f)
	plain, err := age.Decrypt(src, identities...)
	if err == nil {
		var out []byte
		if out, err = io.ReadAll(plain); err == nil {
			return out, nil
		}
	}
	var failed *pluginError
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("age file %s: %w", path, failed)
	}
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return nil, fmt.Errorf("age file %s: no identity of the identity file opens it", path)
	}
	return nil, fmt.Errorf("age file %s: is damaged or no age file", path)
}

// reason takes the path out of err, which the message already has.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
