//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// hidden is what the command must not see, and keeps it so: a mask lies over a
// file, not over a name, and is gone when somebody on the host replaces the file
// by another (a secret that is rotated, a daemon that starts again).
type hidden struct {
	paths    []string // of Command.Hide and directories that hold nothing else
	sockets  []string // masked ones
	dir      string   // the command's working directory
	shared   []string // sockets that are given back
	private  map[uint64]bool
	maskDev  uint64 // file system of every mask
	mounts   []mount
	watching *watch
}

// hide masks everything that setup lists and starts to watch it.
func hide(s *setup, private map[uint64]bool) (*hidden, error) {
	h := &hidden{paths: slices.Clone(s.Hide), dir: s.Dir, shared: s.Share, private: private}
	var stat unix.Stat_t
	if err := unix.Stat(emptyFile, &stat); err != nil {
		return nil, &SetupError{Step: "mask", Err: err}
	}
	h.maskDev = stat.Dev
	var err error
	if h.mounts, err = readMounts(); err != nil {
		return nil, &SetupError{Step: "read the mounts", Err: err}
	}
	if h.watching, err = newWatch(); err != nil {
		return nil, &SetupError{Step: "watch what is hidden", Err: err}
	}
	h.paths = append(h.nothingElse(), h.paths...)
	for _, path := range s.Sockets {
		if err := h.maskSockets(path); err != nil {
			return nil, err
		}
	}
	if err := h.apply(); err != nil {
		return nil, err
	}
	go h.watching.run()
	return h, nil
}

// apply masks what is not masked and watches for what may undo that.
func (h *hidden) apply() error {
	for _, path := range h.paths {
		if err := h.maskPath(path); err != nil {
			return err
		}
	}
	for _, path := range h.sockets {
		if err := h.maskSocket(path); err != nil {
			return err
		}
	}
	return nil
}

// changes delivers look-ups whose result may have changed.
func (h *hidden) changes() <-chan change { return h.watching.changed }

// again masks anew if the change is one that matters.
func (h *hidden) again(c change) error {
	if !h.watching.matters(c) {
		return nil
	}
	return h.apply()
}

// replacedMost is how often in a row what is masked may turn out to be another
// file than the one that was looked at.
const replacedMost = 100

// whole calls mask until it has masked what is there now: it says again if
// somebody on the host put another file there meanwhile.
func whole(step string, mask func() (again bool, err error)) error {
	for range replacedMost {
		if again, err := mask(); err != nil || !again {
			return err
		}
	}
	return &SetupError{Step: step, Err: errors.New("it can still be seen, or is replaced all the time")}
}

// maskPath hides what path leads to, wherever else it can be found.
func (h *hidden) maskPath(path string) error {
	return whole("hide "+path, func() (bool, error) { return h.maskPathOnce(path) })
}

func (h *hidden) maskPathOnce(path string) (again bool, err error) {
	fail := func(err error) (bool, error) { return false, &SetupError{Step: "hide " + path, Err: err} }
	at, err := walk(path)
	if err != nil {
		return fail(err)
	}
	if h.private[at.dev] {
		return false, nil // nobody outside can put anything there
	}
	if at.denied {
		return h.maskDenied(at)
	}
	fresh, err := h.watching.add(at.steps)
	if err != nil {
		return fail(err)
	}
	if fresh {
		return true, nil // what came after the look was not told
	}
	if at.missing || at.dev == h.maskDev {
		return false, nil
	}
	dir := at.stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if dir {
		for _, needed := range []string{h.dir, FilesDir, "/proc", "/dev", "/etc"} {
			if within(needed, at.real) {
				return fail(fmt.Errorf("%s lies in it and is needed", needed))
			}
		}
	} else if at.stat.Nlink > 1 {
		return false, &SetupError{
			Step: "hide " + path,
			Err:  fmt.Errorf("the file has %d names (hard links) and only this one is known", at.stat.Nlink),
			Hint: "find the others with: find / -xdev -samefile " + at.real + "; keep one, or copy the file",
		}
	}
	return h.maskEverywhere(at, "hide "+path)
}

// maskDenied hides the directory that at could not look into, if it belongs to
// this user, who may change its mode. The command cannot go into another's.
func (h *hidden) maskDenied(at place) (again bool, err error) {
	dir, err := walk(at.steps[len(at.steps)-1].dir)
	if err != nil || dir.missing || dir.denied || int(dir.stat.Uid) != os.Geteuid() {
		return false, nil
	}
	return h.maskEverywhere(dir, "hide "+dir.real)
}

// maskEverywhere masks the file that at found and the same file under other
// mounts. It says again if another file is there by now.
func (h *hidden) maskEverywhere(at place, step string) (again bool, err error) {
	source := emptyFile
	if at.stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		source = emptyDir
	}
	replaced := func(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) }
	for _, alias := range aliases(h.mounts, at.real) {
		other, err := walk(alias)
		if err != nil || other.missing || other.denied || other.stat.Ino != at.stat.Ino || other.dev != at.dev {
			continue
		}
		if err := mountOver(source, other); replaced(err) {
			return true, nil
		} else if err != nil {
			return false, mountError(step+" at "+alias, err)
		}
	}
	if err := mountOver(source, at); replaced(err) {
		return true, nil
	} else if err != nil {
		return false, mountError(step, err)
	}
	var stat unix.Stat_t
	err = unix.Lstat(at.real, &stat) // an error: it is gone, and the watch tells when it is there again
	return err == nil && stat.Dev != h.maskDev, nil
}

// maskSockets masks the socket that was seen at path and every other in its
// directory: a daemon may bind one name and then link or rename it to another.
func (h *hidden) maskSockets(path string) error {
	dir := filepath.Dir(filepath.Clean(path))
	at, err := walk(dir)
	if err != nil || at.missing {
		return nil // it is not of this mount namespace
	}
	if at.denied {
		return whole("mask sockets in "+dir, func() (bool, error) { return h.maskDenied(at) })
	}
	found := []string{filepath.Join(at.real, filepath.Base(path))}
	entries, err := os.ReadDir(at.real)
	if err == nil { // a directory that cannot be listed still leads to path
		for _, e := range entries {
			if e.Type() == os.ModeSocket {
				found = append(found, filepath.Join(at.real, e.Name()))
			}
		}
	}
	for _, p := range found {
		if !slices.Contains(h.sockets, p) && !h.isShared(p) {
			if err := h.maskSocket(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *hidden) isShared(path string) bool {
	return slices.ContainsFunc(h.shared, func(s string) bool {
		real, err := filepath.EvalSymlinks(s)
		return err == nil && real == path
	})
}

// maskSocket masks path if it is a socket, and remembers it.
func (h *hidden) maskSocket(path string) error {
	return whole("mask socket "+path, func() (bool, error) { return h.maskSocketOnce(path) })
}

func (h *hidden) maskSocketOnce(path string) (again bool, err error) {
	at, err := walk(path)
	if err == nil && at.denied {
		return h.maskDenied(at)
	}
	if err != nil || at.missing || at.stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return false, nil // nothing there that could be connected to
	}
	if !slices.Contains(h.sockets, path) {
		h.sockets = append(h.sockets, path)
		fresh, err := h.watching.add([]step{{filepath.Dir(path), filepath.Base(path)}})
		if err != nil && !errors.Is(err, unix.EACCES) {
			return false, &SetupError{Step: "mask socket " + path, Err: err}
		}
		if fresh {
			return true, nil // what came after the look was not told
		}
	}
	return h.maskEverywhere(at, "mask socket "+path)
}

// nothingElse lists the directories all of whose files are hidden, of which
// there is one at least. They are hidden as a whole, so that a file that is
// replaced is never seen, not even for the moment until it is masked again.
func (h *hidden) nothingElse() []string {
	inDir, files := make(map[string]map[string]bool), make(map[string]bool)
	for _, path := range h.paths {
		at, err := walk(path)
		if err != nil || at.missing || at.denied || h.private[at.dev] {
			continue
		}
		dir := filepath.Dir(at.real)
		if inDir[dir] == nil {
			inDir[dir] = make(map[string]bool)
		}
		inDir[dir][filepath.Base(at.real)] = true
		files[dir] = files[dir] || at.stat.Mode&unix.S_IFMT != unix.S_IFDIR
	}
	var dirs []string
	for dir, names := range inDir {
		entries, err := os.ReadDir(dir)
		if err != nil || !files[dir] || within(h.dir, dir) || dir == "/" {
			continue
		}
		if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !names[e.Name()] }) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
