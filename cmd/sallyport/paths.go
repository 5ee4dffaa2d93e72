package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// paths are where the program keeps things: the system's places for root,
// the user's own for everybody else.
type paths struct {
	config  string // sallyport.hcl and policy.d
	state   string // CA, placeholder key, logs; 0700
	runtime string // control socket
}

// userPaths returns the default paths of the user who runs the program.
func userPaths() (paths, error) {
	if os.Geteuid() == 0 {
		return paths{"/etc/sallyport", "/var/lib/sallyport", "/run/sallyport"}, nil
	}
	home := os.Getenv("HOME")
	dir := func(variable, below string) string {
		if d := os.Getenv(variable); filepath.IsAbs(d) {
			return filepath.Join(d, "sallyport")
		}
		if home == "" {
			return ""
		}
		return filepath.Join(home, below, "sallyport")
	}
	p := paths{config: dir("XDG_CONFIG_HOME", ".config"), state: dir("XDG_STATE_HOME", ".local/state")}
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		p.runtime = filepath.Join(d, "sallyport")
	} else if p.state != "" {
		p.runtime = filepath.Join(p.state, "run")
	}
	if p.state == "" {
		return p, &exit{code: exitFailed, err: errors.New("no place to keep state: neither HOME nor XDG_STATE_HOME is set"),
			hint: "set XDG_STATE_HOME, or name a folder with --state"}
	}
	return p, nil
}

// makeState makes the state folder, which only its owner may enter.
func makeState(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &exit{code: exitFailed, err: fmt.Errorf("state folder: %w", err), hint: "name another with --state or XDG_STATE_HOME"}
	}
	info, err := closedFolder(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return &exit{code: exitFailed, err: fmt.Errorf("state folder %s belongs to user %d, who could read the keys in it; this is user %d", dir, st.Uid, os.Geteuid()),
			hint: fmt.Sprintf("name another folder (state in the daemon file, --state of run), or give it over: chown -R %d %s", os.Geteuid(), dir)}
	}
	return nil
}

// closedFolder looks at a state folder, which only its owner may enter.
func closedFolder(dir string) (fs.FileInfo, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, &exit{code: exitFailed, err: fmt.Errorf("state folder %s is open to other users (mode %04o)", dir, info.Mode().Perm()),
			hint: "chmod 0700 " + dir}
	}
	return info, nil
}
