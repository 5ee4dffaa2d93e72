package age

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// setup makes an identity file and returns the paths of it and of a secret
// file that is not there yet.
func setup(t *testing.T) (Config, *age.X25519Identity) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	identity := write(t, filepath.Join(dir, "key.txt"), "# created for a test\n"+id.String()+"\n", 0o600)
	return Config{Path: filepath.Join(dir, "secrets.age"), Identity: identity}, id
}

func encrypt(t *testing.T, path, text string, armored bool, to age.Recipient) {
	t.Helper()
	var b bytes.Buffer
	var dst io.WriteCloser = struct {
		io.Writer
		io.Closer
	}{&b, io.NopCloser(nil)}
	if armored {
		dst = armor.NewWriter(&b)
	}
	w, err := age.Encrypt(dst, to)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if armored {
		if err := dst.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(t, path, b.String(), 0o600)
}

func fetch(t *testing.T, c Config) (string, error) {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Fetch(t.Context())
	if err == nil && f.TTL <= 0 {
		t.Error("a value is good for ever")
	}
	return f.Value.Reveal(), err
}

func TestFetch(t *testing.T) {
	for name, tt := range map[string]struct {
		text, key string
		armored   bool
		want, err string
	}{
		"one value":      {text: "REAL\n", want: "REAL"},
		"armored":        {text: "REAL", armored: true, want: "REAL"},
		"key":            {text: `{"A":"x","B":"REAL"}`, key: "B", want: "REAL"},
		"no key":         {text: `{"A":"REAL"}`, key: "B", err: `has no key "B"`},
		"no object":      {text: "REAL", key: "B", err: "JSON object"},
		"null":           {text: "null", key: "B", err: "JSON object"},
		"object of more": {text: `{"B":{"c":"REAL"}}`, key: "B", err: "JSON object"},
		"line in it":     {text: "REAL\nmore", err: "control character"},
		"empty":          {text: "", err: "value is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			c, id := setup(t)
			c.Key = tt.key
			encrypt(t, c.Path, tt.text, tt.armored, id.Recipient())
			got, err := fetch(t, c)
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("%q, %v", got, err)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "REAL")) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// fifo makes one that nobody writes to.
func fifo(t *testing.T, beside string) string {
	t.Helper()
	path := beside + ".fifo"
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFetchRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testing.T, *Config)
		want   string
	}{
		"no file":          {func(_ *testing.T, c *Config) { c.Path += "x" }, "no such file"},
		"a directory":      {func(_ *testing.T, c *Config) { c.Path = filepath.Dir(c.Path) }, "not a regular file"},
		"a FIFO":           {func(t *testing.T, c *Config) { c.Path = fifo(t, c.Path) }, "not a regular file"},
		"identity: a FIFO": {func(t *testing.T, c *Config) { c.Identity = fifo(t, c.Path) }, "not a regular file"},
		"no identity":      {func(_ *testing.T, c *Config) { c.Identity += "x" }, "no such file"},
		"identity for all": {func(t *testing.T, c *Config) { _ = os.Chmod(c.Identity, 0o644) }, "lets others read it"},
		"identity is none": {func(t *testing.T, c *Config) { write(t, c.Identity, "AGE-SECRET-KEY-1BROKEN", 0o600) }, "no identity"},
		"plain text":       {func(t *testing.T, c *Config) { write(t, c.Path, "REAL", 0o600) }, "damaged or no age file"},
		"of somebody else": {func(t *testing.T, c *Config) {
			other, _ := age.GenerateX25519Identity()
			encrypt(t, c.Path, "REAL", false, other.Recipient())
		}, "no identity of the identity file opens it"},
		"cut short": {func(t *testing.T, c *Config) {
			b, _ := os.ReadFile(c.Path)
			write(t, c.Path, string(b[:len(b)-5]), 0o600)
		}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			c, id := setup(t)
			encrypt(t, c.Path, "REAL", false, id.Recipient())
			tt.change(t, &c)
			if got, err := fetch(t, c); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "BROKEN") || got != "" {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	for range 20 { // what is wrong first is named first, always
		if _, err := New(Config{Path: "p", Identity: "i"}); err == nil || !strings.Contains(err.Error(), `path "p"`) {
			t.Fatalf("error %v", err)
		}
	}
	for want, c := range map[string]Config{
		"path is missing": {Identity: "/i"}, "identity is missing": {Path: "/p"}, "is not absolute": {Path: "p", Identity: "/i"},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestSetAndRemove(t *testing.T) {
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"X25519", "hybrid"} {
		t.Run(kind, func(t *testing.T) {
			c, _ := setup(t)
			if kind == "hybrid" {
				write(t, c.Identity, hybrid.String()+"\n", 0o600)
			}
			one, two := c, c
			one.Key, two.Key = "ONE", "TWO"
			for _, step := range []struct {
				c     Config
				value string
			}{{one, "REAL-1"}, {two, "REAL-2\n"}, {one, "REAL-3"}} {
				if err := Set(step.c, []byte(step.value)); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := fetch(t, one); err != nil || got != "REAL-3" {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := fetch(t, two); err != nil || got != "REAL-2" {
				t.Errorf("%q, %v", got, err)
			}
			info, err := os.Stat(c.Path)
			if b, _ := os.ReadFile(c.Path); err != nil || info.Mode().Perm() != 0o600 || bytes.Contains(b, []byte("REAL")) {
				t.Errorf("%v, %v", info, err)
			}
			if err := Remove(one); err != nil {
				t.Fatal(err)
			}
			if _, err := fetch(t, one); err == nil {
				t.Error("a removed value is there")
			}
			if err := Remove(one); err == nil || !strings.Contains(err.Error(), "has no key") {
				t.Errorf("error %v", err)
			}
			if err := Remove(c); err != nil {
				t.Fatal(err)
			}
			if list, _ := filepath.Glob(filepath.Join(filepath.Dir(c.Path), "*age*")); len(list) != 0 {
				t.Errorf("left behind: %v", list)
			}
		})
	}
	t.Run("whole file", func(t *testing.T) {
		c, _ := setup(t)
		if err := Set(c, []byte("REAL\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := fetch(t, c); err != nil || got != "REAL" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("a bad value changes nothing", func(t *testing.T) {
		c, _ := setup(t)
		if err := Set(c, []byte("REAL\nX: y")); err == nil || strings.Contains(err.Error(), "REAL") {
			t.Errorf("error %v", err)
		}
		if _, err := os.Stat(c.Path); err == nil {
			t.Error("a file was made")
		}
	})
	t.Run("a file of another is not overwritten", func(t *testing.T) {
		c, _ := setup(t)
		c.Key = "ONE"
		other, _ := age.GenerateX25519Identity()
		encrypt(t, c.Path, `{"A":"b"}`, false, other.Recipient())
		before, _ := os.ReadFile(c.Path)
		if err := Set(c, []byte("REAL")); err == nil {
			t.Error("overwritten")
		}
		if after, _ := os.ReadFile(c.Path); !bytes.Equal(before, after) {
			t.Error("changed")
		}
	})
}
