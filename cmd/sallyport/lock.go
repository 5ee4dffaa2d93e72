package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"sallyport/gateway/capture"
)

// lockOnly closes what the daemon file captures in this namespace, and starts
// nothing. Nothing is left for later: what cannot be locked is an error.
func (f *serveFlags) lockOnly() error {
	_, file, err := f.readConfig()
	if err != nil {
		return err
	}
	for _, b := range file.Captures {
		for _, glob := range b.links() {
			if err := capture.Lockable(glob); err != nil {
				return b.at(fmt.Errorf("%w; it cannot be held before it is there: write names, or NAME*", err))
			}
		}
	}
	return file.lock(hclog.NewNullLogger())
}

// lock checks the captures and closes the links that they name, so that one that
// appears is held from its first packet and not from when the daemon has noticed
// it, and its own namespace if that is shared. A glob that cannot be locked is
// left to the captures.
func (file *daemonFile) lock(log hclog.Logger) error {
	var globs []string
	for _, b := range file.Captures {
		if err := b.check(); err != nil {
			return b.at(err)
		}
		if len(b.links()) > 0 && os.Geteuid() != 0 {
			return b.at(errNeedsRoot)
		}
		if b.Shared {
			if err := capture.LockShared(); err != nil {
				return b.at(err)
			}
		}
		for _, glob := range b.links() {
			if err := capture.Lockable(glob); err != nil {
				log.Warn("interfaces of this name are held only once the daemon has seen them", "capture", b.Name, "error", err)
				continue
			}
			globs = append(globs, glob)
		}
	}
	return capture.LockInterfaces(globs)
}

var errNeedsRoot = errors.New("an interface needs root (CAP_NET_ADMIN)")

// links are the names and globs of the links that a block captures.
func (b captureBlock) links() []string {
	return append(append([]string(nil), b.Interface...), b.Tap...)
}

// at says where in the daemon file an error is.
func (b captureBlock) at(err error) error {
	return fmt.Errorf("%s:%d: capture %q: %w", b.Range.Filename, b.Range.Start.Line, b.Name, err)
}
