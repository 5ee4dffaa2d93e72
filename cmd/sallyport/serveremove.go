package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/gateway/capture"
)

// removeRules takes away what a stopped daemon left in the kernel. The daemon
// file names its state; while one runs with that, nothing is taken away, and
// none starts meanwhile.
func (f *serveFlags) removeRules() (err error) {
	p, file, err := f.readConfig()
	if err != nil {
		return err
	}
	if file.State != "" {
		p.state = file.State
	}
	leave, err := holdState(p.state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	err = errors.Join(capture.RemoveRules(), capture.RemoveBridges(), capture.ReleaseNamespaces(filepath.Join(p.runtime, tapDir)))
	if errors.Is(err, unix.EPERM) { // of each of them
		return &exit{code: exitFailed, err: errors.New("serve --remove: this user may not change the rules of the kernel"), hint: "be root, or have CAP_NET_ADMIN as the daemon had"}
	}
	return err
}

// holdState takes the lock that a daemon has on its state folder, until leave is
// called. A state that is not there or is broken has no daemon, and no lock.
func holdState(dir string) (leave func() error, err error) {
	none := func() error { return nil }
	path := filepath.Join(dir, "state.db")
	if _, err := os.Stat(path); err != nil { // opening it would make it
		return none, nil
	}
	state, err := audit.OpenState(path)
	if errors.Is(err, audit.ErrBusy) {
		return nil, &exit{code: exitFailed, err: fmt.Errorf("state folder %s: a daemon runs with it, and its sandboxes would be without a guard; nothing was removed", dir),
			hint: "stop it first"}
	}
	if err != nil {
		return none, nil
	}
	return state.Close, nil
}
