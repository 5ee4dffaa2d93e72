package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"sallyport/gateway/capture"
	"sallyport/policy"
)

// harden gives up, once every socket is open, what serving does not need. What
// the daemon file asks for must be had; the rest is as far as it can be had.
func (d *daemonProcess) harden() error {
	log := d.settings.log
	if d.file.Confine {
		if err := mayConfine(len(d.captures.engines) > 0, d.loader.commands()); err != nil {
			return err
		}
		read, write := d.confines()
		if err := capture.Confine(read, write); err != nil {
			return &exit{err: fmt.Errorf("confine: %w", err), hint: "remove confine = true from the daemon file to start without it"}
		}
		log.Info("confined to its files", "read", read, "write", write)
	}
	switch err := capture.Harden(d.writesForeign()); {
	case errors.Is(err, capture.ErrPartlyHardened):
		log.Debug("hardened in part", "error", err)
	case err != nil:
		log.Warn("not hardened", "error", err)
	default:
		log.Debug("hardened: capabilities dropped, system calls filtered")
	}
	return nil
}

// writesForeign says whether something that the daemon writes to, such as the
// socket of a user's container engine, belongs to another user than its own.
func (d *daemonProcess) writesForeign() bool {
	paths := []string{d.settings.state, d.settings.own, d.runtime, filepath.Dir(d.control.path)}
	for _, b := range d.file.Captures {
		if b.Engine != "" {
			paths = append(paths, b.socket())
		}
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		return ok && st.Uid != uint32(os.Geteuid())
	})
}

// mayConfine refuses what a confined process cannot do: to see an engine's
// containers, and to run the commands of the secrets that are named.
func mayConfine(engine bool, secrets []string) error {
	if engine {
		return errors.New("confine does not go with a container engine: a confined process cannot see the namespaces of others")
	}
	for _, s := range secrets {
		return fmt.Errorf("confine does not go with the command %s of a secret, which would be confined too", s)
	}
	return nil
}

// confines are the files of a confined daemon. The policy's folders, and those
// of secrets, are what they are at the start: a file that a reload brings from
// elsewhere cannot be read, and the reload fails.
func (d *daemonProcess) confines() (read, write []string) {
	read = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/localtime",
		"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/share/zoneinfo", "/run/netns", "/run/systemd/resolve",
		"/proc/self", "/proc/net", "/proc/sys/kernel", "/proc/sys/net", "/proc/stat", "/sys/fs/cgroup", "/sys/class/net"}
	write = []string{d.settings.state, d.settings.own, d.runtime, filepath.Dir(d.control.path), "/dev/null", "/dev/net/tun", "/proc/self/task", "/proc/sys/net"}
	for _, path := range append(d.loader.sourceFiles(), d.loader.paths...) {
		dir := path
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			dir = filepath.Dir(path) // files are replaced by renaming
		}
		read = append(read, dir)
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			read = append(read, real)
		}
	}
	slices.Sort(read)
	return slices.Compact(read), write
}

// commands are the programs of secrets' sources.
func (l *loader) commands() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return commandsOf(l.declared)
}

// commandsOf names the secrets whose source is a command.
func commandsOf(declared []policy.Secret) []string {
	var out []string
	for _, s := range declared {
		if s.Source.Kind == "exec" {
			out = append(out, s.Name)
		}
	}
	return out
}
