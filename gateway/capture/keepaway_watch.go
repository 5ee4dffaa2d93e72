//go:build linux

package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// watch tells when a look-up may have a new result, by inotify(7).
type watch struct {
	file    *os.File
	names   map[int32]map[string]bool // by inotify's number of the directory
	changed chan change
}

// change is one name in one directory that means something else than before.
// The zero change says that changes were lost.
type change struct {
	dir  int32 // inotify's number
	name string
}

// watchMask is every event by which a name comes to mean another file.
const watchMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_ONLYDIR

func newWatch() (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &watch{
		file:    os.NewFile(uintptr(fd), "inotify"),
		names:   make(map[int32]map[string]bool),
		changed: make(chan change),
	}, nil
}

// add watches the look-ups of steps. A directory on the way that this user may
// pass but not list is left out: others alone can replace what is in it. The
// last one is not. fresh says that one was not watched before: what became of it
// since it was looked at has not been told.
func (w *watch) add(steps []step) (fresh bool, err error) {
	for i, s := range steps {
		fd, err := unix.InotifyAddWatch(int(w.file.Fd()), s.dir, watchMask)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES) && i < len(steps)-1:
			continue
		case err != nil:
			return fresh, &os.PathError{Op: "watch", Path: s.dir, Err: err}
		}
		number := int32(fd)
		if w.names[number] == nil {
			w.names[number] = make(map[string]bool)
		}
		fresh = fresh || !w.names[number][s.name]
		w.names[number][s.name] = true
	}
	return fresh, nil
}

// matters says whether c is about a name that was added.
func (w *watch) matters(c change) bool { return c == change{} || w.names[c.dir][c.name] }

// run delivers changes until the file is closed.
func (w *watch) run() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		for _, c := range parseEvents(buffer[:n]) {
			w.changed <- c
		}
	}
}

// parseEvents reads what inotify's descriptor gave.
func parseEvents(b []byte) []change {
	var changes []change
	for len(b) >= unix.SizeofInotifyEvent {
		number := int32(binary.NativeEndian.Uint32(b[0:]))
		mask := binary.NativeEndian.Uint32(b[4:])
		length := uint64(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if length > uint64(len(b)) {
			break
		}
		name, _, _ := bytes.Cut(b[:length], []byte{0})
		b = b[length:]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			changes = append(changes, change{})
		case mask&unix.IN_IGNORED == 0:
			changes = append(changes, change{dir: number, name: string(name)})
		}
	}
	return changes
}
