package age

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"filippo.io/age/plugin"

	"sallyport/secrets"
)

// withPlugin builds the plugin, puts it into the path, and returns an identity
// file with an identity of it that behaves in a way.
func withPlugin(t *testing.T, how string) Config {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "age-plugin-lab"), "./testdata/plugin").CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Path: filepath.Join(dir, "secrets.age"), Key: "openai",
		Identity: write(t, filepath.Join(dir, "key.txt"), "# on a token\n\n"+plugin.EncodeIdentity("lab", []byte(how+":"+id.String()))+"\n", 0o600)}
	encrypt(t, c.Path, `{"openai": "REAL-of-the-token"}`, false, id.Recipient())
	return c
}

func TestPluginOpensAndWrites(t *testing.T) {
	c := withPlugin(t, "well")
	if got, err := fetch(t, c); err != nil || got != "REAL-of-the-token" {
		t.Errorf("%q, %v", got, err)
	}
	if err := Set(c, []byte("REAL-another")); err != nil {
		t.Fatal(err)
	}
	if got, err := fetch(t, c); err != nil || got != "REAL-another" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPluginFails(t *testing.T) {
	c := withPlugin(t, "ask")
	if _, err := fetch(t, c); err == nil || !strings.Contains(err.Error(), "a PIN is needed") {
		t.Errorf("a plugin that asks: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := fetch(t, c); err == nil || !strings.Contains(err.Error(), "no program age-plugin-lab in") {
		t.Errorf("no plugin: %v", err)
	}
	write(t, c.Identity, "AGE-PLUGIN-LAB-1NONSENSE\n", 0o600)
	if _, err := fetch(t, c); err == nil || !strings.Contains(err.Error(), "no identity") {
		t.Errorf("no identity: %v", err)
	}
	write(t, c.Identity, "# none\n", 0o600)
	if _, err := fetch(t, c); err == nil || !strings.Contains(err.Error(), "no identity") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestPluginThatHangs: it is not waited for longer than its caller waits, and
// not started again meanwhile.
func TestPluginThatHangs(t *testing.T) {
	s, err := New(withPlugin(t, "hang"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		var f secrets.Fetched
		f, err = s.Fetch(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "has not answered") || !f.Value.IsZero() {
			t.Errorf("%v", err)
		}
	}
	if n := len(s.(*source).busy); n != 1 {
		t.Errorf("%d calls are under way", n)
	}
}
