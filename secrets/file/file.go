// Package file takes a secret from a file and notices when the file changes.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sallyport/secrets"
)

// reread is how long a value is good. A change is noticed at once where the
// kernel reports it; network file systems and some overlays do not.
const reread = time.Minute

// Config says which file.
type Config struct {
	Path string // absolute
}

type source struct{ path string }

// New makes a source of c, which is a secrets.Watcher. The file is read at each fetch, not by New; it may
// come to be later.
func New(c Config) (secrets.Source, error) {
	switch {
	case c.Path == "":
		return nil, errors.New("file: path is missing")
	case !filepath.IsAbs(c.Path):
		return nil, fmt.Errorf("file: path %q is not absolute", c.Path)
	}
	return source{filepath.Clean(c.Path)}, nil
}

// Fetch reads the file. It must be a regular file of at most
// secrets.MaxValue bytes and a newline; a FIFO or device is refused without
// waiting for it.
func (s source) Fetch(context.Context) (secrets.Fetched, error) {
	f, err := secrets.OpenFile(s.path)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("file %s: %w", s.path, reason(err))
	}
	defer f.Close()
	const newline = 2 // "\r\n"
	b, err := io.ReadAll(io.LimitReader(f, secrets.MaxValue+newline+1))
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("file %s: %w", s.path, reason(err))
	}
	v, err := secrets.NewValue(b)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("file %s: %w", s.path, err)
	}
	return secrets.Fetched{Value: v, TTL: reread}, nil
}

// reason takes the path out of err, which the message already has.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
