package age

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
)

// TestSetKeepsTheFile: owner, mode, armor and a link stay as they were.
func TestSetKeepsTheFile(t *testing.T) {
	for _, key := range []string{"", "ONE"} {
		c, id := setup(t)
		c.Key = key
		dir := t.TempDir()
		real := filepath.Join(dir, "real.age")
		encrypt(t, real, `{"ONE":"REAL-1","TWO":"REAL-2"}`, true, id.Recipient())
		if err := os.Chmod(real, 0o640); err != nil {
			t.Fatal(err)
		}
		uid, gid := os.Getuid(), os.Getgid()
		if uid == 0 {
			uid, gid = 12345, 23456
		}
		if err := os.Chown(real, uid, gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("real.age", filepath.Join(dir, "second.age")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, "second.age"), c.Path); err != nil {
			t.Fatal(err)
		}
		if err := Set(c, []byte("REAL-3")); err != nil {
			t.Fatal(err)
		}
		if got, err := fetch(t, c); err != nil || got != "REAL-3" {
			t.Errorf("%q, %v", got, err)
		}
		for _, link := range []string{c.Path, filepath.Join(dir, "second.age")} {
			if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s is no link any longer: %v, %v", link, info, err)
			}
		}
		info, err := os.Lstat(real)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); info.Mode() != 0o640 || int(st.Uid) != uid || int(st.Gid) != gid {
			t.Errorf("mode %v of %d:%d, want 0640 of %d:%d", info.Mode(), st.Uid, st.Gid, uid, gid)
		}
		if b, _ := os.ReadFile(real); !bytes.HasPrefix(b, []byte(armored)) {
			t.Errorf("the armor is gone: %.40q", b)
		}
		if key != "" {
			continue
		}
		if err := Remove(c); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(real); err == nil {
			t.Error("the value is still in the file behind the links")
		}
		if err := Set(c, []byte("REAL-4")); err != nil { // through the links, to a file that is not there
			t.Fatal(err)
		}
		if _, err := os.Lstat(real); err != nil {
			t.Error(err)
		}
	}
}

// TestSetRefuses: what would take the file from somebody, or damage a value, is
// refused and changes nothing.
func TestSetRefuses(t *testing.T) {
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	const doc = `{"ONE":"REAL-1"}`
	for name, tt := range map[string]struct {
		key, text, value string
		to               []age.Recipient
		want             string
	}{
		"another recipient":    {key: "ONE", text: doc, value: "REAL-2", to: []age.Recipient{other.Recipient()}, want: "1 of its 2 recipients are not in the identity file"},
		"and of a whole file":  {text: "REAL-1", value: "REAL-2", to: []age.Recipient{other.Recipient()}, want: "1 of its 2 recipients are not in the identity file"},
		"value is no UTF-8":    {key: "ONE", text: doc, value: "REAL-\xff\xfe", want: "is no UTF-8"},
		"another is no UTF-8":  {key: "ONE", text: "{\"TWO\":\"REAL-\xff\"}", value: "REAL-2", want: "no UTF-8"},
		"another is half":      {key: "ONE", text: `{"TWO":"REAL-\ud800"}`, value: "REAL-2", want: "half a surrogate pair"},
		"two others":           {key: "ONE", text: doc, value: "REAL-2", to: []age.Recipient{other.Recipient(), other.Recipient()}, want: "2 of its 3 recipients"},
		"whole file of others": {text: "REAL-1", value: "REAL-2", to: []age.Recipient{nil, other.Recipient()}, want: "no identity of the identity file opens it"},
	} {
		t.Run(name, func(t *testing.T) {
			c, id := setup(t)
			c.Key = tt.key
			to := append([]age.Recipient{id.Recipient()}, tt.to...)
			if len(tt.to) > 0 && tt.to[0] == nil {
				to = tt.to[1:]
			}
			encryptTo(t, c.Path, tt.text, to...)
			before, _ := os.ReadFile(c.Path)
			if err := Set(c, []byte(tt.value)); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "REAL") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if after, _ := os.ReadFile(c.Path); !bytes.Equal(before, after) {
				t.Error("changed")
			}
		})
	}
	t.Run("own recipients are none of others", func(t *testing.T) {
		c, id := setup(t)
		write(t, c.Identity, id.String()+"\n"+other.String()+"\n", 0o600)
		encryptTo(t, c.Path, "REAL-1", id.Recipient(), other.Recipient())
		if err := Set(c, []byte("REAL-2\xff")); err != nil { // which a file of its own holds
			t.Fatal(err)
		}
		if got, err := fetch(t, c); err != nil || got != "REAL-2\xff" {
			t.Errorf("%q, %v", got, err)
		}
		write(t, c.Identity, hybrid.String()+"\n", 0o600)
		if err := os.Truncate(c.Path, 0); err != nil {
			t.Fatal(err)
		}
		if err := Set(c, []byte("REAL-3")); err != nil { // an empty file has no recipient
			t.Fatal(err)
		}
	})
	t.Run("links in a ring", func(t *testing.T) {
		c, _ := setup(t)
		if err := os.Symlink(c.Path, c.Path); err != nil {
			t.Fatal(err)
		}
		if err := Set(c, []byte("REAL-1")); err == nil {
			t.Error("written")
		}
	})
}

// TestOwnerIsNotToldToBeTheOwner: what is said to do is something else than what
// is done already.
func TestOwnerIsNotToldToBeTheOwner(t *testing.T) {
	own := &syscall.Stat_t{Uid: 65534, Gid: 65534}
	for name, tt := range map[string]struct {
		of        syscall.Stat_t
		want, not string
	}{
		"foreign group": {syscall.Stat_t{Uid: 65534, Gid: 7}, "group 7, which is none of yours", "as that user"},
		"foreign user":  {syscall.Stat_t{Uid: 7, Gid: 65534}, "run this as that user or as root", "of yours"},
	} {
		if got := cannotHave(&tt.of, own).Error(); !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func encryptTo(t *testing.T, path, text string, to ...age.Recipient) {
	t.Helper()
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to...)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(text))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.String(), 0o600)
}
