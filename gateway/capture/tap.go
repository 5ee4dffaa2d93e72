//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Beginnings of the alias of a link that OpenTap holds; the network namespace
// where its gateway runs follows. What was made goes with its namespace, what
// was moved goes back.
const (
	madeAlias  = "made by sallyport in "
	movedAlias = "moved by sallyport from "
)

// home names the network namespace of the calling thread.
func home() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }

// TapOptions describes the network of one virtual machine: a tap in a
// namespace of sallyport's own, which must be named.
type TapOptions struct {
	InterfaceOptions
	// Owner is the ID of the user who may open the tap besides root.
	Owner int
}

// OpenTap captures all traffic of a virtual machine. The tap is made in its
// namespace if there is no link of its name, there or where the gateway runs;
// one that is there, of whatever kind, is moved. The monitor of the machine
// runs in the namespace, or is given the tap's descriptor. There the tap
// stays, also while nobody has it open.
func OpenTap(o TapOptions) (*Sockets, error) {
	if o.Namespace == "" {
		return nil, fmt.Errorf("tap %q: has no namespace", o.Interface)
	}
	if _, err := o.gate(); err != nil {
		return nil, fmt.Errorf("tap %q: %w", o.Interface, err)
	}
	if err := makeTap(o); err != nil {
		return nil, fmt.Errorf("tap %q: %w", o.Interface, err)
	}
	return OpenInterface(o.InterfaceOptions)
}

// makeTap makes the tap unless its name is taken.
func makeTap(o TapOptions) error {
	from, err := home()
	if err != nil {
		return err
	}
	here, err := hasLink(o.Interface)
	if err != nil {
		return err
	}
	if here {
		return setAlias(o.Interface, movedAlias+from)
	}
	ns, err := ownNamespace(o.Namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	return inNamespace(ns, func() error {
		there, err := hasLink(o.Interface)
		if there || err != nil {
			return err
		}
		if err := persistentTap(o.Interface, o.Owner); err != nil {
			return err
		}
		return setAlias(o.Interface, madeAlias+from)
	})
}

func setAlias(name, alias string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	return os.NewSyscallError("alias", netlink.LinkSetAlias(link, alias))
}

func hasLink(name string) (bool, error) {
	_, err := netlink.LinkByName(name)
	var absent netlink.LinkNotFoundError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &absent):
		return false, nil
	}
	return false, fmt.Errorf("link: %w", err)
}

// persistentTap makes a tap in the namespace of the calling thread that
// outlives whoever opens it, with one queue and with the header that lets a
// guest leave checksums and segmentation to the host.
func persistentTap(name string, owner int) error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	fd := int(f.Fd())
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return os.NewSyscallError("make", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, owner); err != nil {
		return os.NewSyscallError("owner", err)
	}
	return os.NewSyscallError("keep", unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1))
}

// ReleaseNamespaces undoes OpenTap for every namespace in a directory, as far as
// its gateway ran where it is called: links that were moved go back, down and
// without addresses, and those that were made go away. A directory that is not
// there is not an error.
func ReleaseNamespaces(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	here, err := home()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, release(filepath.Join(dir, e.Name()), e.Name(), here))
	}
	return errors.Join(errs...)
}

func release(path, device, here string) error {
	ns, err := openNamespaceFile(path)
	if err != nil { // what was mounted there went with the mounts of a service
		return os.Remove(path)
	}
	defer ns.Close()
	elsewhere := false
	err = inNamespace(ns, func() error {
		link, err := netlink.LinkByName(device)
		var absent netlink.LinkNotFoundError
		if errors.As(err, &absent) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("link: %w", err)
		}
		for _, prefix := range []string{madeAlias, movedAlias} {
			if home, ok := strings.CutPrefix(link.Attrs().Alias, prefix); ok && home != here {
				elsewhere = true
			}
		}
		return nil
	})
	if err != nil || elsewhere {
		return err
	}
	return ReleaseInterface(device, path)
}
