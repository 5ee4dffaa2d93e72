package oauth2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/secrets"
)

// finishTime is how long an exchange of the refresh token goes on after its
// context was cancelled.
const finishTime = 3 * time.Second

// whole is the context of one exchange, which the caller ends. An endpoint that
// gives another refresh token takes the one before back: one that was asked is
// heard out also when the gateway ends or is loaded anew meanwhile, or the new
// token would be lost and the old one worth nothing.
func (s *source) whole(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.c.Grant != RefreshToken || ctx.Err() != nil {
		return ctx, func() {}
	}
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if end, ok := ctx.Deadline(); ok {
		out, cancel = context.WithDeadline(out, end)
	}
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(finishTime)
		defer late.Stop()
		select {
		case <-late.C:
			cancel()
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel() }
}

// held returns the refresh token.
func (s *source) held() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refresh != nil {
		return s.refresh(), nil
	}
	return read(s.c.RefreshTokenFile)
}

// keep writes a refresh token in the place of the one that it replaces. One
// that cannot be written is kept in memory, so that the gateway goes on until
// it is restarted.
func (s *source) keep(token string) error {
	if _, err := secrets.NewValue([]byte(token)); err != nil {
		return fmt.Errorf("refresh_token: %w", err)
	}
	if old, err := s.held(); err == nil && old == token {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := replace(s.c.RefreshTokenFile, token+"\n"); err != nil {
		s.refresh = func() string { return token }
		return nil
	}
	s.lay()
	s.refresh = nil
	return nil
}

// NextFile is the file in which a refresh token is written before it takes the
// place of the one in path. It lies there empty all the time, so that a mask
// that keeps a sandbox from path can be laid over it before it holds anything.
// The two files change names, each with its mask.
func NextFile(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
}

// lay makes the file for the next refresh token, empty, and empties one that
// was left by a process that ended while it wrote. Where the folder cannot be
// written it does nothing.
func (s *source) lay() {
	if s.c.Grant != RefreshToken {
		return
	}
	if f, err := os.OpenFile(NextFile(s.c.RefreshTokenFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err == nil {
		_ = f.Close() // nothing was written
	}
}

// replace writes the file for the next token and gives it the name path.
func replace(path, text string) error {
	f, err := os.OpenFile(NextFile(path), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync()); err == nil {
		if err = unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); err != nil {
			err = os.Rename(f.Name(), path) // the file system cannot, or path is gone
		}
	}
	if err != nil {
		err = errors.Join(err, f.Truncate(0))
	}
	return errors.Join(err, f.Close())
}

// read reads a secret from a file.
func read(path string) (string, error) {
	b, err := secrets.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(b), "\r\n")
	if text == "" || len(text) > maxFile {
		return "", fmt.Errorf("file %s: is empty or too long", path)
	}
	return text, nil
}
