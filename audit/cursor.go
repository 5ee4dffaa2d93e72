package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// place is a position in the files of one log: a segment and the offset of a
// line's first byte in it.
type place struct {
	n   uint64
	off int64
}

func (p place) before(q place) bool { return p.n < q.n || (p.n == q.n && p.off < q.off) }

// cursor reads the lines of one log forward, from segment to segment. It keeps
// no byte of an unfinished line, so that one that is cut off again never shows.
type cursor struct {
	dir   string
	at    place
	until place // reading ends there; zero is the end of the files
	line  int   // number of the line at at; 0 if not known

	f     *os.File
	buf   []byte // read at bufAt and not yet handed out
	bufAt place
	mem   []byte
}

const readBlock = 256 << 10

func newCursor(dir string, at place) *cursor {
	c := &cursor{dir: dir, at: at}
	if at.off == 0 {
		c.line = 1
	}
	return c
}

func (c *cursor) path() string { return filepath.Join(c.dir, segmentName(c.at.n)) }

func (c *cursor) close() {
	if c.f != nil {
		c.f.Close()
		c.f = nil
	}
	c.buf = nil
}

// next returns the next whole line without its newline; it is the caller's
// until the next call. At the end of what is written it returns io.EOF, and may
// be asked again. A *LineError has been passed over; other errors are of the
// disk.
func (c *cursor) next() ([]byte, error) {
	for {
		if c.until != (place{}) && !c.at.before(c.until) {
			return nil, io.EOF
		}
		if line, ok := c.buffered(); ok {
			return line, nil
		}
		err := c.fill()
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		moved, err := c.advance()
		if err != nil {
			return nil, err
		}
		if !moved {
			return nil, io.EOF
		}
	}
}

// buffered takes the next line from the buffer.
func (c *cursor) buffered() ([]byte, bool) {
	if len(c.buf) == 0 {
		return nil, false
	}
	nl := bytes.IndexByte(c.buf, '\n')
	if nl < 0 {
		return nil, false
	}
	line := c.buf[:nl]
	c.buf = c.buf[nl+1:]
	c.step(int64(nl) + 1)
	return line, true
}

// jump goes on at a place that is not before where it is, without what is
// between.
func (c *cursor) jump(to place) {
	n := to.off - c.at.off
	switch {
	case to == c.at:
		return
	case to.n != c.at.n:
		c.close()
	case n <= int64(len(c.buf)):
		c.buf = c.buf[n:]
	default:
		c.buf = nil
	}
	c.at, c.line = to, 0
}

func (c *cursor) step(n int64) {
	c.at.off += n
	if c.line > 0 {
		c.line++
	}
}

// fill reads at the cursor until there is a whole line, or returns io.EOF.
func (c *cursor) fill() error {
	if c.f == nil {
		if c.at.n == 0 {
			return io.EOF
		}
		f, err := os.Open(c.path())
		if errors.Is(err, os.ErrNotExist) {
			return io.EOF
		}
		if err != nil {
			return err
		}
		c.f = f
	}
	if c.mem == nil {
		c.mem = make([]byte, readBlock)
	}
	for {
		n, err := c.f.ReadAt(c.mem, c.at.off)
		if err != nil && err != io.EOF {
			return fmt.Errorf("%s: %w", c.path(), err)
		}
		if bytes.IndexByte(c.mem[:n], '\n') >= 0 {
			c.buf = c.mem[:n]
			return nil
		}
		if n < len(c.mem) {
			c.buf = nil
			return io.EOF
		}
		if len(c.mem) > maxLine {
			return c.skip()
		}
		c.mem = make([]byte, 4*len(c.mem))
	}
}

// skip passes over a line that is too long to be one.
func (c *cursor) skip() error {
	bad := &LineError{File: c.path(), Line: c.line, Offset: c.at.off, Err: errors.New("line is too long to be a record")}
	for off := c.at.off; ; {
		n, err := c.f.ReadAt(c.mem, off)
		if nl := bytes.IndexByte(c.mem[:n], '\n'); nl >= 0 {
			c.step(off + int64(nl) + 1 - c.at.off)
			return bad
		}
		if err != nil {
			return io.EOF // it may still go on
		}
		off += int64(n)
	}
}

// advance moves to the next segment if there is one and nothing more can come
// in this one: the log writes nothing to a segment after its successor exists.
// It also follows a segment that was deleted and written again, and a log that
// was deleted and begins anew.
func (c *cursor) advance() (bool, error) {
	list, err := segments(c.dir)
	if err != nil {
		return false, err
	}
	if c.anew(list) {
		c.close()
		c.at, c.line = place{n: list[0]}, 1
		return true, nil
	}
	for _, n := range list {
		if n > c.at.n {
			if c.f != nil && c.fill() == nil {
				return true, nil
			}
			c.close()
			c.at, c.line = place{n: n}, 1
			return true, nil
		}
	}
	return false, c.reopen()
}

// anew reports whether the segments in list are of another log than the one that
// is read: the segment's name is one with another beginning, or it is gone and
// those before it are written.
func (c *cursor) anew(list []uint64) bool {
	if c.until != (place{}) || c.at.n == 0 || len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	_, there := slices.BinarySearch(list, c.at.n)
	switch {
	case there:
		return c.f != nil && c.another()
	case last > c.at.n:
		return false
	case c.f == nil:
		return true
	}
	held, err := c.f.Stat()
	if err != nil {
		return false
	}
	info, err := os.Stat(filepath.Join(c.dir, segmentName(last)))
	// Nothing is written to a segment after its successor exists.
	return err == nil && info.ModTime().After(held.ModTime())
}

// another reports whether the file that has the segment's name now begins with
// another record than the open one. Written again, it has the same bytes.
func (c *cursor) another() bool {
	named, err := os.Open(c.path())
	if err != nil {
		return false
	}
	defer named.Close()
	a, errA := named.Stat()
	b, errB := c.f.Stat()
	if errA != nil || errB != nil || os.SameFile(a, b) {
		return false
	}
	now, errA := firstRecord(named)
	was, errB := firstRecord(c.f)
	return errA == nil && errB == nil && now != was
}

// reopen lets go of the open file if its name is another's now. What the
// log wrote again has the same bytes; if it is shorter, another hand was at it.
func (c *cursor) reopen() error {
	if c.f == nil {
		return nil
	}
	named, err := os.Stat(c.path())
	if err != nil {
		return nil // deleted: it is written again, or a successor comes
	}
	held, err := c.f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(named, held) {
		if named.Size() == 0 {
			return nil // what it begins with says which log it is of
		}
		c.close()
	}
	if named.Size() < c.at.off {
		bad := &LineError{File: c.path(), Offset: named.Size(), Err: fmt.Errorf("segment was cut by %d bytes", c.at.off-named.Size())}
		c.at.off, c.line = named.Size(), 0
		return bad
	}
	return nil
}

// ends returns where the log in dir begins and where what is written of it
// ends: after the last newline of its last segment.
func ends(dir string) (first, end place, err error) {
	list, err := segments(dir)
	if err != nil || len(list) == 0 {
		return place{}, place{}, err
	}
	first.n, end.n = list[0], list[len(list)-1]
	f, err := os.Open(filepath.Join(dir, segmentName(end.n)))
	if err != nil {
		return place{}, place{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return place{}, place{}, err
	}
	end.off, err = lastNewline(f, info.Size())
	return first, end, err
}

// lastNewline returns the offset after the last newline in the first size
// bytes of r, 0 if there is none.
func lastNewline(r io.ReaderAt, size int64) (int64, error) {
	block := make([]byte, tailBlock)
	for size > 0 {
		n := min(size, tailBlock)
		got, err := r.ReadAt(block[:n], size-n)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if nl := bytes.LastIndexByte(block[:got], '\n'); nl >= 0 {
			return size - n + int64(nl) + 1, nil
		}
		size -= n
	}
	return 0, nil
}
