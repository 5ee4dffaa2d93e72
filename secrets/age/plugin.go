package age

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/plugin"

	"sallyport/secrets"
)

// pluginPrefix begins identities whose key a program holds: a hardware token,
// an agent, a key service.
const pluginPrefix = "AGE-PLUGIN-"

// pluginIdentity is an identity of a plugin, the program age-plugin-NAME. It
// is never asked anything, since there is nobody to answer: a plugin may wait
// for a key to be touched, and fails where it wants a PIN.
type pluginIdentity struct{ *plugin.Identity }

func newPluginIdentity(line string) (age.Identity, error) {
	i, err := plugin.NewIdentity(line, &plugin.ClientUI{})
	if err != nil {
		return nil, err
	}
	return pluginIdentity{i}, nil
}

// Unwrap asks the plugin.
func (i pluginIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	key, err := i.Identity.Unwrap(stanzas)
	if err != nil && !errors.Is(err, age.ErrIncorrectIdentity) {
		return nil, &pluginError{i.Name(), err}
	}
	return key, err
}

// pluginError is why a plugin did not open a file.
type pluginError struct {
	name string
	err  error
}

// Error says what the plugin said, or that there is none.
func (e *pluginError) Error() string {
	var none *plugin.NotFoundError
	if errors.As(e.err, &none) {
		return fmt.Sprintf("there is no program age-plugin-%s in the gateway's PATH", e.name)
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, e.err.Error())
	return fmt.Sprintf("%.200s", text)
}

// Unwrap is of package errors.
func (e *pluginError) Unwrap() error { return e.err }

// within calls f, which a plugin may hold up for as long as it likes, and
// waits until ctx ends. While a call goes on, no other begins.
func (s *source) within(ctx context.Context, f func() ([]byte, error)) ([]byte, error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("age file %s: the plugin of its identity has not answered", s.c.Path)
	}
	type result struct {
		plain []byte
		err   error
	}
	done := make(chan result, 1)
	go func() {
		plain, err := f()
		<-s.busy
		done <- result{plain, err}
	}()
	select {
	case r := <-done:
		return r.plain, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("age file %s: the plugin of its identity has not answered", s.c.Path)
	}
}

// AsksPlugin says whether a file of identities names one of a plugin, which may
// wait for somebody to touch a key.
func AsksPlugin(identity string) bool {
	f, err := secrets.OpenFile(identity)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxIdentity)); lines.Scan(); {
		if strings.HasPrefix(strings.TrimSpace(lines.Text()), pluginPrefix) {
			return true
		}
	}
	return false
}
