package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"sallyport/gateway/capture"
	"sallyport/policy"
)

// tapDir is the folder of the namespaces that taps are in, below the runtime
// folder. A name there is that of its tap.
const tapDir = "net"

// openTaps opens the taps that b names. They need not be there: what is
// missing is made.
func (c *captures) openTaps(b captureBlock) error {
	for _, name := range b.Tap {
		if err := c.openInterface(b, name); err != nil {
			return err
		}
	}
	return nil
}

// openTap opens the link of a virtual machine in a namespace of its own.
func (c *captures) openTap(b captureBlock, o capture.InterfaceOptions) (*capture.Sockets, error) {
	t := capture.TapOptions{InterfaceOptions: o}
	t.Namespace = filepath.Join(c.runtime, tapDir, o.Interface)
	// What a service mounts may be seen by itself alone: a namespace that was
	// made for it is taken.
	if named := namespacePath(o.Interface); fileExists(named) {
		t.Namespace = named
	} else if mountsAreOwn() {
		c.st.settings.log.Warn("the tap's namespace is seen by this service alone; for a monitor to enter, make one: ip netns add NAME", "tap", o.Interface)
	}
	if b.Owner != "" {
		u, err := user.Lookup(b.Owner)
		if err != nil {
			return nil, fmt.Errorf("owner: %w", err)
		}
		if t.Owner, err = strconv.Atoi(u.Uid); err != nil {
			return nil, fmt.Errorf("owner %s: %w", b.Owner, err)
		}
	}
	return capture.OpenTap(t)
}

// mountsAreOwn says whether the process sees other mounts than the machine's
// first.
func mountsAreOwn() bool {
	own, err1 := os.Readlink("/proc/self/ns/mnt")
	first, err2 := os.Readlink("/proc/1/ns/mnt")
	return err1 == nil && err2 == nil && own != first
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isTap says whether name is that of a tap of the daemon file.
func (c *captures) isTap(name string) bool {
	return slices.ContainsFunc(c.blocks, func(b captureBlock) bool { return slices.Contains(b.Tap, name) })
}

// replaced says whether a link of a tap's name has appeared where the gateway
// runs: it is another than the one that is open, and is to be moved.
func (b captureBlock) replaced(name string) bool {
	if !slices.Contains(b.Tap, name) {
		return false
	}
	_, err := net.InterfaceByName(name)
	return err == nil
}

// macsOn are the Ethernet addresses that go with the addresses from which
// sandboxes may send on an interface. Those of a sandbox that is bound to none
// are not there.
func macsOn(set *policy.Set, iface string) map[netip.Prefix][]net.HardwareAddr {
	out, free := map[netip.Prefix][]net.HardwareAddr{}, map[netip.Prefix]bool{}
	for _, name := range sandboxesOn(set, iface) {
		macs := macsOf(set, name)
		for _, p := range sourcesOf(set, name) {
			if len(macs) == 0 {
				free[p] = true
			}
			out[p] = append(out[p], macs...)
		}
	}
	maps.DeleteFunc(out, func(p netip.Prefix, _ []net.HardwareAddr) bool { return free[p] })
	return out
}

// macsOf are the Ethernet addresses that a sandbox is bound to.
func macsOf(set *policy.Set, name string) []net.HardwareAddr {
	var out []net.HardwareAddr
	for _, text := range set.Sandbox(name).Match.MACs {
		if mac, err := net.ParseMAC(text); err == nil { // policy has checked them
			out = append(out, mac)
		}
	}
	return out
}

// claimant asks policy whose an address behind an interface is. Which of the
// bound Ethernet addresses it came from the kernel has checked, but does not
// tell: it is nobody's if that would decide between two sandboxes.
func claimant(set *policy.Set) func(string, netip.Addr, string) (string, bool) {
	return func(iface string, addr netip.Addr, _ string) (string, bool) {
		if name, ok := set.Claim(iface, addr, ""); ok {
			return name, true
		}
		found := ""
		for _, sandbox := range sandboxesOn(set, iface) {
			for _, mac := range macsOf(set, sandbox) {
				name, ok := set.Claim(iface, addr, mac.String())
				switch {
				case !ok || name == found:
				case found != "":
					return "", false
				default:
					found = name
				}
			}
		}
		return found, found != ""
	}
}
