package file

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func watcher(t *testing.T, path string) secrets.Watcher {
	t.Helper()
	s, err := New(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s.(secrets.Watcher)
}

func TestNewRefuses(t *testing.T) {
	for path, want := range map[string]string{"": "missing", "relative/key": "not absolute", "./key": "not absolute"} {
		if _, err := New(Config{Path: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v", path, err)
		}
	}
}

func TestSEC05Fetch(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ content, want, err string }{
		"plain":   {content: "REAL", want: "REAL"},
		"newline": {content: "REAL\n", want: "REAL"},
		"crlf":    {content: "REAL\r\n", want: "REAL"},
		"evil":    {content: "REAL\r\nX-Evil: 1", err: "control character"},
		"nul":     {content: "REAL\x00", err: "control character"},
		"empty":   {content: "", err: "value is empty"},
		"bom":     {content: "\xef\xbb\xbfREAL", err: "byte order mark"},
		"long":    {content: strings.Repeat("R", 70<<10), err: "longer than"},
		"longest": {content: strings.Repeat("R", secrets.MaxValue) + "\r\n", want: strings.Repeat("R", secrets.MaxValue)},
		"fifo":    {err: "not a regular file"},
		"dir":     {err: "not a regular file"},
		"missing": {err: "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.content != "" || name == "empty" {
				write(t, path(name), tt.content)
			}
			f, err := watcher(t, path(name)).Fetch(t.Context())
			if tt.err == "" {
				if err != nil || f.Value.Reveal() != tt.want || f.TTL <= 0 {
					t.Errorf("%d bytes, %v, %v", len(f.Value.Reveal()), f.TTL, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "REAL") || !f.Value.IsZero() {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if err != nil && strings.Count(err.Error(), path(name)) != 1 {
				t.Errorf("error %v does not name the file once", err)
			}
		})
	}
	t.Run("no permission", func(t *testing.T) {
		write(t, path("closed"), "REAL")
		if err := os.Chmod(path("closed"), 0); err != nil {
			t.Fatal(err)
		}
		_, err := watcher(t, path("closed")).Fetch(t.Context())
		denied := err != nil && strings.Contains(err.Error(), "permission denied")
		if denied == (os.Geteuid() == 0) { // root reads everything
			t.Errorf("error %v", err)
		}
	})
}

// quiet is how long nothing comes that belongs to a change: what was gathered
// while it settled may have to wait for a processor.
const quiet = 15 * settle

// watching starts a watch and returns a function that waits for the next
// change and one that says that none came.
func watching(t *testing.T, path string) (next, none func(what string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	changes := make(chan struct{}, 100)
	if err := watcher(t, path).Watch(ctx, func() { changes <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	next = func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: no change noticed", what)
		}
		for { // what belongs to the same change
			select {
			case <-changes:
				continue
			case <-time.After(quiet):
			}
			return
		}
	}
	none = func(what string) {
		t.Helper()
		select {
		case <-changes:
			t.Errorf("%s: taken for a change", what)
		case <-time.After(quiet):
		}
	}
	return next, none
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	write(t, path, "one")
	next, none := watching(t, path)

	write(t, path, "two!")
	next("written in place")

	write(t, filepath.Join(dir, ".key.tmp"), "three")
	none("another file of the directory")
	if err := os.Rename(filepath.Join(dir, ".key.tmp"), path); err != nil {
		t.Fatal(err)
	}
	next("renamed over")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	next("removed")
	write(t, path, "four")
	next("made again")

	// The directory itself is replaced.
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	next("directory gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, "five")
	next("directory back")
	write(t, path, "six is longer")
	next("written in the new directory")
}

// TestWatchSymlinkSwap does what Kubernetes does with a mounted secret: key
// is a link to ..data/key, and ..data a link that is renamed over.
func TestWatchSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	for version, text := range map[string]string{"v1": "one", "v2": "two"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "key"), text)
	}
	link := func(target, name string) {
		t.Helper()
		tmp := filepath.Join(dir, "tmp-link")
		if err := os.Symlink(target, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", "..data")
	link("..data/key", "key")
	path := filepath.Join(dir, "key")
	next, _ := watching(t, path)
	link("v2", "..data")
	next("link swapped")
	if f, err := watcher(t, path).Fetch(t.Context()); err != nil || f.Value.Reveal() != "two" {
		t.Errorf("%q, %v", f.Value.Reveal(), err)
	}
	write(t, filepath.Join(dir, "v2", "key"), "two and more")
	next("written behind the links")
}

func TestWatchLinkElsewhere(t *testing.T) {
	elsewhere, dir := t.TempDir(), t.TempDir()
	write(t, filepath.Join(elsewhere, "real"), "one")
	path := filepath.Join(dir, "key")
	if err := os.Symlink(filepath.Join(elsewhere, "real"), path); err != nil {
		t.Fatal(err)
	}
	next, _ := watching(t, path)
	write(t, filepath.Join(elsewhere, "real"), "two!")
	next("the file that the link leads to")
}

func TestWatchNeedsTheDirectory(t *testing.T) {
	err := watcher(t, filepath.Join(t.TempDir(), "not", "here", "key")).Watch(t.Context(), func() {})
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if err := watcher(t, loop).Watch(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), "too many symbolic links") {
		t.Errorf("error %v", err)
	}
}

// standing is a watcher that says when it watches.
type standing struct {
	secrets.Watcher
	stands chan struct{}
}

// Watch watches.
func (s standing) Watch(ctx context.Context, changed func()) error {
	defer close(s.stands)
	return s.Watcher.Watch(ctx, changed)
}

func TestStoreSeesRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write(t, path, "one")
	src := standing{watcher(t, path), make(chan struct{})}
	s, err := secrets.Open(secrets.Options{Specs: []secrets.Spec{{Name: "KEY", Source: src}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	defer func() { cancel(); <-done }()

	want := func(text string) {
		t.Helper()
		var last string
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			v, err := s.Get(ctx, "KEY")
			if last = v.Reveal(); last == text || text == "" && err != nil {
				return
			}
		}
		t.Fatalf("is %q, want %q", last, text)
	}
	want("one")
	<-src.stands
	write(t, path+".new", "two")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	want("two")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("")
	write(t, path, "three")
	want("three")
}
