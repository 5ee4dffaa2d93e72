//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// withLinkMoved runs open inside the namespace at path, after it was made and
// the link was moved into it. Both may have been done by a gateway before.
func withLinkMoved(device, path string, open func() error) error {
	ns, err := ownNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	link, err := netlink.LinkByName(device)
	var absent netlink.LinkNotFoundError
	switch {
	case err == nil:
		if err := notUplink(link); err != nil {
			return err
		}
		if err := netlink.LinkSetNsFd(link, int(ns.Fd())); err != nil {
			return fmt.Errorf("move to %s: %w", path, err)
		}
	case !errors.As(err, &absent):
		return fmt.Errorf("link: %w", err)
	}
	return inNamespace(ns, func() error {
		if err := nothingBut(device); err != nil {
			return fmt.Errorf("namespace %s: %w", path, err)
		}
		return open()
	})
}

// nothingBut makes sure that the namespace of the calling thread has lo, up, and
// device, and no link beside them.
func nothingBut(device string) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	found := false
	for _, l := range links {
		a := l.Attrs()
		switch {
		case a.Flags&net.FlagLoopback != 0:
			if err := netlink.LinkSetUp(l); err != nil {
				return fmt.Errorf("lo: up: %w", err)
			}
		case a.Name == device:
			found = true
		case !isFallbackTunnel(a):
			return fmt.Errorf("link %q is there too: it may lead out", a.Name)
		}
	}
	if !found {
		return fmt.Errorf("link %q: not found, here or where the gateway runs", device)
	}
	return nil
}

// ownNamespace opens the network namespace at path and makes it first if it is
// not there: a file on which the namespace is mounted, so that it outlives the
// process.
func ownNamespace(path string) (*os.File, error) {
	if ns, err := openNamespaceFile(path); err == nil {
		return ns, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	mountPoint, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o400)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	mountPoint.Close()
	if err := mountNewNamespace(path); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", path, err), os.Remove(path))
	}
	return openNamespaceFile(path)
}

// mountNewNamespace makes a network namespace on a thread that ends with it.
func mountNewNamespace(path string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- mountNewNamespace(path) // this goroutine holds the main thread meanwhile
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- os.NewSyscallError("unshare", err)
			return
		}
		done <- os.NewSyscallError("mount", unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""))
	}()
	return <-done
}

// ReleaseInterface undoes InterfaceOptions.Namespace: it moves the interface
// back to where the gateway runs, down and without addresses, and removes the
// namespace. A namespace that is not there is not an error.
func ReleaseInterface(device, path string) error {
	ns, err := openNamespaceFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	err = inNamespace(ns, func() error {
		link, err := netlink.LinkByName(device)
		var absent netlink.LinkNotFoundError
		if errors.As(err, &absent) {
			return nil // the sandbox is gone, and its end with it
		}
		if err != nil {
			return fmt.Errorf("link: %w", err)
		}
		if strings.HasPrefix(link.Attrs().Alias, madeAlias) {
			return os.NewSyscallError("remove", netlink.LinkDel(link))
		}
		return os.NewSyscallError("move back", netlink.LinkSetNsFd(link, int(home.Fd())))
	})
	if err != nil {
		return fmt.Errorf("interface %q: %w", device, err)
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("namespace %s: %w", path, os.NewSyscallError("unmount", err))
	}
	return os.Remove(path)
}
