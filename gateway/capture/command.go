//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// FilesDir is where Command.Files are found inside the sandbox.
const FilesDir = "/run/sallyport"

// DefaultResolvConf is the sandbox's /etc/resolv.conf unless Command says
// otherwise. Any resolver would do, since port 53 of every address is answered;
// this one is the gateway's own virtual address.
const DefaultResolvConf = "nameserver 198.18.0.1\n"

// Command is what is run in a sandbox.
type Command struct {
	Argv []string // Argv[0] is looked up in the PATH of Env, inside the sandbox
	Dir  string   // working directory; "" is the caller's
	Env  []string // the whole environment; nothing is added

	Stdin, Stdout, Stderr *os.File // nil is /dev/null

	// Share are absolute paths that are given back although they lie below a
	// directory that the sandbox has of its own (/run, /tmp, /dev, /dev/shm,
	// $XDG_RUNTIME_DIR). A listening socket is given back only by its own path.
	// The working directory is always given back.
	Share []string

	// Hide are absolute paths of files and directories of which the sandbox
	// sees an empty one. What does not exist yet is hidden when it appears.
	Hide []string

	ResolvConf string            // content of /etc/resolv.conf; "" is DefaultResolvConf
	Files      map[string][]byte // by path below FilesDir, read-only
	Timeout    time.Duration     // after it the sandbox is ended; 0 is none

	// Over says which of Files stand in the place of files of the host, by
	// absolute path. A path that leads to no file is left as it is.
	Over map[string]string

	// Own says of which directories, by absolute path, the sandbox has one of
	// its own, that it may write and that at first has what Files has below
	// the folder named. One that is missing is made, empty and on the host
	// too, if what it is to be made in belongs to the caller; else it is left.
	Own map[string]string
}

// Result is how a command ended.
type Result struct {
	ExitCode int            // the command's own, or 128 + Signal
	Signal   syscall.Signal // that killed it; 0 if it exited
	TimedOut bool           // Command.Timeout ended it

	CPU    time.Duration // user and system time of every process of the sandbox
	MaxRSS int64         // bytes, of the largest process; never below the few MiB of the launcher
}

// Exit codes of a command that could not be run, as of env(1) and every shell.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// ExecError says that the command itself could not be run. The sandbox was in
// order.
type ExecError struct {
	Path string // Argv[0]
	Err  error
	Code int // ExitNotExecutable or ExitNotFound
}

// Error names the command and the reason.
func (e *ExecError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *ExecError) Unwrap() error { return e.Err }

// newExecError classes the error of looking up or executing path.
func newExecError(path string, errno syscall.Errno) *ExecError {
	e := &ExecError{Path: path, Err: errno, Code: ExitNotExecutable}
	switch errno {
	case syscall.ENOENT:
		e.Code = ExitNotFound
		if !strings.ContainsRune(path, '/') {
			e.Err = errors.New("command not found")
		}
	case syscall.ENOEXEC:
		e.Err = fmt.Errorf("%w (a script needs a #! line)", errno)
	}
	return e
}

// check refuses what cannot be run and fills in what is left out.
func (c *Command) check() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return errors.New("command is empty")
	}
	for _, list := range [][]string{c.Argv, c.Env, c.Share, c.Hide, {c.Dir, c.ResolvConf}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return errors.New("command: an argument, variable or path has a NUL byte")
			}
		}
	}
	if c.Timeout < 0 {
		return fmt.Errorf("timeout %v is negative", c.Timeout)
	}
	if err := c.checkDir(); err != nil {
		return err
	}
	for kind, paths := range map[string][]string{"share": c.Share, "hide": c.Hide} {
		for _, p := range paths {
			if !filepath.IsAbs(p) {
				return fmt.Errorf("%s %q: not an absolute path", kind, p)
			}
		}
	}
	for name := range c.Files {
		if !filepath.IsLocal(name) || filepath.Clean(name) != name || name[0] == '.' {
			return fmt.Errorf("file %q: not a plain relative path, or it begins with a dot", name)
		}
	}
	for path, name := range c.Over {
		if _, ok := c.Files[name]; !ok || !filepath.IsAbs(path) {
			return fmt.Errorf("file %q over %q: no such file, or not an absolute path", name, path)
		}
	}
	for path, folder := range c.Own {
		if !filepath.IsAbs(path) || !filepath.IsLocal(folder) {
			return fmt.Errorf("folder %q as %q: not a plain relative path, or not an absolute one", folder, path)
		}
	}
	if c.ResolvConf == "" {
		c.ResolvConf = DefaultResolvConf
	}
	return nil
}

func (c *Command) checkDir() error {
	if c.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		c.Dir = dir
	}
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("working directory %q: not an absolute path", c.Dir)
	}
	if info, err := os.Stat(c.Dir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("working directory %s: not a directory", c.Dir)
	}
	return nil
}

// variable returns the last value of name in env, as the C library does not
// but every shell does.
func variable(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// variableOr returns the value of name in env, or otherwise if it has none.
func variableOr(env []string, name, otherwise string) string {
	if v, ok := variable(env, name); ok && v != "" {
		return v
	}
	return otherwise
}
