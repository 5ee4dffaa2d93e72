//go:build linux

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Documentation are the networks of the lab, as a rule must name them: they
// are no addresses of the internet.
const Documentation = `["203.0.113.0/24", "2001:db8:1::/64"]`

// SecretFile writes the value of a secret, which only root may read.
func (l *Lab) SecretFile(value string) (string, error) {
	file := filepath.Join(l.Dir, l.Unique("secret"))
	return file, os.WriteFile(file, []byte(value), 0o600)
}

// Policy writes text as a policy is written, with the networks of the lab in
// the place of DOCS and a secret's file in that of SECRETFILE, whose content
// is value.
func (l *Lab) Policy(text, value string) (string, error) {
	file, err := l.SecretFile(value)
	return strings.NewReplacer("DOCS", Documentation, "SECRETFILE", file).Replace(text), err
}

// MustPolicy is Policy in a test.
func (l *Lab) MustPolicy(t testing.TB, text, value string) string {
	t.Helper()
	out, err := l.Policy(text, value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
