package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a burst of events is gathered: an editor or a
	// rotation makes several for one change.
	settle = 20 * time.Millisecond
	// maxLinks bounds a chain of symbolic links, as the kernel does.
	maxLinks = 40
)

// Watch calls changed after each change of the file until ctx ends. It
// watches directories, not the file, so that a new file renamed over the old
// one is seen; and every directory on the way through symbolic links, so
// that swapping a link (as Kubernetes does with a mounted secret) is seen as
// well.
func (s source) Watch(ctx context.Context, changed func()) error {
	last := stamp(s.path)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("file %s: watch: %w", s.path, err)
	}
	watched := map[string]bool{}
	if err := follow(w, s.path, watched); err != nil {
		w.Close()
		return fmt.Errorf("file %s: watch: %w", s.path, err)
	}
	go func() {
		defer w.Close()
		s.watch(ctx, w, watched, last, changed)
	}()
	return nil
}

func (s source) watch(ctx context.Context, w *fsnotify.Watcher, watched map[string]bool, last state, changed func()) {
	sure := false // that the file changed, though its stamp may not show it
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			sure = sure || e.Has(fsnotify.Write) && filepath.Base(e.Name) == filepath.Base(s.path)
			if settled == nil {
				settled = time.After(settle)
			}
		case _, ok := <-w.Errors: // a queue that overflowed: anything may have changed
			if !ok {
				return
			}
			sure = true
			if settled == nil {
				settled = time.After(settle)
			}
		case <-settled:
			settled = nil
			// The links may lead elsewhere now, and a directory that was
			// replaced has lost its watch.
			clear(watched)
			_ = follow(w, s.path, watched)
			if now := stamp(s.path); now != last || sure {
				last, sure = now, false
				changed()
			}
		}
	}
}

// follow watches the directory of path and, through symbolic links, those of
// what it leads to. A missing file is no error, a missing directory is.
func follow(w *fsnotify.Watcher, path string, watched map[string]bool) error {
	for range maxLinks {
		if err := watchParents(w, path, watched); err != nil {
			return err
		}
		next, err := nextLink(path)
		if err != nil || next == "" {
			return err
		}
		path = next
	}
	return errors.New("too many symbolic links")
}

// watchParents watches the directory of path and the one that holds it,
// where the directory itself can be replaced.
func watchParents(w *fsnotify.Watcher, path string, watched map[string]bool) error {
	dir := filepath.Dir(path)
	for i, d := range []string{dir, filepath.Dir(dir)} {
		if watched[d] {
			continue
		}
		if err := w.Add(d); err != nil {
			if i == 0 {
				return err
			}
			continue // the one above may be closed to us
		}
		watched[d] = true
	}
	return nil
}

// nextLink resolves the first symbolic link among path's elements, and
// returns "" when there is none.
func nextLink(path string) (string, error) {
	for prefix := path; prefix != "/" && prefix != "."; prefix = filepath.Dir(prefix) {
		info, err := os.Lstat(prefix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(prefix)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(prefix), target)
		}
		return filepath.Join(target, path[len(prefix):]), nil
	}
	return "", nil
}
