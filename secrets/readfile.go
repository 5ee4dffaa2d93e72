package secrets

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxRead is the longest file that ReadFile reads, in bytes.
const maxRead = 4 << 20

var errNotRegular = errors.New("is not a regular file")

// OpenFile opens a file that a source reads. It must be a regular file: whoever
// reads a FIFO or a device waits for as long as the other side likes. Its errors
// are of type *os.PathError.
func OpenFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close() // nothing was read
		return nil, &os.PathError{Op: "file", Path: path, Err: errNotRegular}
	}
	return f, nil
}

// ReadFile reads a file as OpenFile opens it.
func ReadFile(path string) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err == nil && len(b) > maxRead {
		err = fmt.Errorf("file %s: is longer than %d bytes", path, maxRead)
	}
	return b, err
}
