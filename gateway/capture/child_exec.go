//go:build linux

package capture

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultPath is searched when the command's environment has no PATH, as
// execvp(3) does.
const defaultPath = "/bin:/usr/bin"

// runCommand starts the command and, if the launcher wants it so, gives it the
// terminal. execErr is why the command cannot be executed, err why the sandbox
// is at fault.
func (c *child) runCommand() (pid int, execErr syscall.Errno, err error) {
	type result struct {
		pid     int
		execErr syscall.Errno
		err     error
	}
	r := onOwnThread(func() (r result) {
		if r.err = dropPrivilege(); r.err != nil {
			return r
		}
		r.pid, r.execErr = c.exec()
		return r
	})
	if r.pid != 0 && c.setup.Terminal {
		// If the command asks for the terminal before it has it, it is stopped,
		// the launcher hears of it and says kindForeground.
		c.giveTerminal(r.pid)
	}
	return r.pid, r.execErr, r.err
}

// exec starts the command on the calling thread, in a process group of its own.
func (c *child) exec() (int, syscall.Errno) {
	path, errno := lookUp(c.setup.Argv[0], c.setup.Dir, c.setup.Env)
	if errno != 0 {
		return 0, errno
	}
	pid, err := syscall.ForkExec(path, c.setup.Argv, &syscall.ProcAttr{
		Dir:   c.setup.Dir,
		Env:   c.setup.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err == nil {
		return pid, 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return 0, errno
	}
	return 0, syscall.EINVAL
}

// lookUp finds the file that name means in dir with the PATH of env. Like
// execvp(3) it answers EACCES if there was a file that must not be executed and
// none that may.
func lookUp(name, dir string, env []string) (string, syscall.Errno) {
	if strings.ContainsRune(name, '/') {
		return name, executable(inDir(dir, name))
	}
	path, ok := variable(env, "PATH")
	if !ok {
		path = defaultPath
	}
	found := syscall.ENOENT
	for _, entry := range filepath.SplitList(path) {
		candidate := filepath.Join(entry, name)
		if entry == "" || entry == "." {
			candidate = "./" + name
		}
		switch executable(inDir(dir, candidate)) {
		case 0:
			return candidate, 0
		case syscall.EACCES:
			found = syscall.EACCES
		}
	}
	return "", found
}

func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + "/" + path
}

// executable says why path cannot be executed, as far as its mode tells.
func executable(path string) syscall.Errno {
	info, err := os.Stat(path)
	if err != nil {
		return errnoOf(err, syscall.ENOENT)
	}
	if info.IsDir() {
		return syscall.EACCES
	}
	return errnoOf(unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS), 0)
}
