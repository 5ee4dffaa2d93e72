package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
	"sallyport/policy"
)

// openInterfaces opens the links that b names and that are not open yet.
func (c *captures) openInterfaces(b captureBlock) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		if !matchesAny(b.Interface, l.Name) {
			continue
		}
		if err := c.openInterface(b, l.Name); err != nil {
			return err
		}
	}
	return nil
}

func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, err := path.Match(g, name); return ok && err == nil })
}

// openInterface opens one link, or opens it again when the addresses that
// policy binds on it have changed.
func (c *captures) openInterface(b captureBlock, name string) error {
	sources, macs := sourcesOn(c.st.gateway.Policy(), name, b.onLink(name)), macsOn(c.st.gateway.Policy(), name)
	c.mu.Lock()
	old := c.open["interface "+name]
	c.mu.Unlock()
	same := func(a, b []net.HardwareAddr) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
	if old != nil && slices.Equal(old.sources, sources) && maps.EqualFunc(old.macs, macs, same) && !b.replaced(name) {
		return b.keepBridge(name)
	}
	if len(sources) == 0 {
		c.st.settings.log.Warn("no sandbox of the policy matches the interface; what comes from it is refused", "interface", name)
		sources = nil
	}
	if old != nil {
		c.endFor(old)
	}
	o := capture.InterfaceOptions{Interface: name, Sources: sources, MACsOf: macs}
	for _, text := range b.Address {
		if p, err := netip.ParsePrefix(text); err == nil {
			o.Gateway = append(o.Gateway, p)
		}
	}
	if len(sources) == 0 { // an address that nobody has: all is spoofed
		o.Sources = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")}
	}
	place := keptPlace("interface", name)
	sockets, err := c.keeper.open(place, whoseOn(c.st.gateway.Policy(), name), func(k *capture.Kept) (*capture.Sockets, error) {
		o.Kept = k
		return c.openLink(b, o)
	})
	if err != nil {
		return err
	}
	in := gateway.NewInbound("interface "+name, sockets, func(src netip.Addr) (*identity.Sandbox, bool) {
		if !src.IsValid() { // of packets that the kernel counted and did not log
			return c.only(name)
		}
		return c.claim(name, src)
	})
	return c.add("interface "+name, &openCapture{in: in, place: place, sources: sources, macs: macs})
}

// keepBridge holds what is open on a bridge against changes of its ports and
// of the host's settings.
func (b captureBlock) keepBridge(name string) error {
	if !capture.IsBridge(name) {
		return nil
	}
	err := capture.BridgeFiltering()
	if !b.Peers {
		err = errors.Join(err, capture.IsolatePorts(name))
	}
	return err
}

// openLink opens a bridge as a bridge: its ports are kept apart.
func (c *captures) openLink(b captureBlock, o capture.InterfaceOptions) (*capture.Sockets, error) {
	if len(b.Tap) > 0 {
		return c.openTap(b, o)
	}
	if !capture.IsBridge(o.Interface) {
		return capture.OpenInterface(o)
	}
	if addr, ok := loopbackResolver(resolvConf); ok {
		c.st.settings.log.Warn("the resolver of this host is on its loopback; a container engine asks it for its containers from the host's side, past the gateway, unless it is told to ask the gateway: set its dns option to the gateway's address on the bridge",
			"interface", o.Interface, "resolver", addr)
	}
	return capture.OpenBridge(capture.BridgeOptions{InterfaceOptions: o, Peers: b.Peers})
}

const resolvConf = "/etc/resolv.conf"

// loopbackResolver returns the first resolver in a file that is on the
// loopback.
func loopbackResolver(file string) (netip.Addr, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return netip.Addr{}, false
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil && a.IsLoopback() {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// claim says which sandbox speaks from src on an interface.
func (c *captures) claim(iface string, src netip.Addr) (*identity.Sandbox, bool) {
	set := c.st.gateway.Policy()
	if set == nil {
		return nil, false
	}
	sb, err := c.st.sandboxes.Claim(identity.Traffic{Interface: iface, Addr: src.Unmap()}, claimant(set), audit.NewID)
	if err != nil && !errors.Is(err, identity.ErrUnclaimed) {
		c.st.settings.log.Error("claim was not kept; the traffic is refused", "interface", iface, "error", err)
	}
	return sb, err == nil
}

// only is the sandbox of an interface on which no other can be.
func (c *captures) only(iface string) (*identity.Sandbox, bool) {
	set := c.st.gateway.Policy()
	if set == nil {
		return nil, false
	}
	names := sandboxesOn(set, iface)
	if len(names) != 1 {
		return nil, false
	}
	return c.claim(iface, sourcesOf(set, names[0])[0].Addr()) // all that it claims there is one life
}

// sandboxesOn are those of the policy that may be on an interface.
func sandboxesOn(set *policy.Set, iface string) []string {
	return slices.DeleteFunc(slices.Clone(set.Sandboxes()), func(name string) bool {
		m := set.Sandbox(name).Match
		return len(m.Interfaces) > 0 && !matchesAny(m.Interfaces, iface) || len(sourcesOf(set, name)) == 0
	})
}

// whoseOn tells one division of an interface among sandboxes from every other.
func whoseOn(set *policy.Set, iface string) string {
	var b strings.Builder
	for _, name := range sandboxesOn(set, iface) {
		m := set.Sandbox(name).Match
		fmt.Fprintf(&b, "%q %q %q %q\n", name, m.CIDRs, m.Interfaces, m.MACs)
	}
	return digest(b.String())
}

// sourcesOf are the addresses from which a sandbox may send where it may be.
func sourcesOf(set *policy.Set, name string) []netip.Prefix {
	m := set.Sandbox(name).Match
	if len(m.CIDRs) == 0 && len(m.Interfaces)+len(m.MACs) > 0 {
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	return m.CIDRs
}

// sourcesOn are the addresses from which some sandbox of the policy may send
// on an interface. Those of a sandbox that names no interface are another
// interface's if they are not on the networks that this one has: whoever is
// behind it could pass for that sandbox.
func sourcesOn(set *policy.Set, iface string, onLink []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, name := range sandboxesOn(set, iface) {
		for _, p := range sourcesOf(set, name) {
			family := func(q netip.Prefix) bool { return q.Addr().Is4() == p.Addr().Is4() }
			if len(set.Sandbox(name).Match.Interfaces) == 0 && slices.ContainsFunc(onLink, family) && !slices.ContainsFunc(onLink, p.Overlaps) {
				continue
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Compare(b) })
	return slices.Compact(out)
}

// onLink are the networks of an interface, as the kernel has them or the block
// gives them to it. An address with nobody else in its network tells nothing.
func (b captureBlock) onLink(name string) []netip.Prefix {
	texts := slices.Clone(b.Address)
	if l, err := net.InterfaceByName(name); err == nil {
		addrs, _ := l.Addrs() // without them nothing is known to be elsewhere
		for _, a := range addrs {
			texts = append(texts, a.String())
		}
	}
	var out []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err == nil && p.Bits() < p.Addr().BitLen() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Masked())
		}
	}
	return out
}

// reconsiderInterfaces opens interfaces that are new, and those anew for which
// policy has changed.
func (c *captures) reconsiderInterfaces() {
	for _, b := range c.blocks {
		if len(b.Interface)+len(b.Tap) == 0 {
			continue
		}
		if err := errors.Join(c.openInterfaces(b), c.openTaps(b)); err != nil {
			c.st.settings.log.Error("interface was not opened; what comes from it is refused", "capture", b.Name, "error", err)
		}
	}
}

// watchLinks opens interfaces that appear, until ctx ends.
func (c *captures) watchLinks(ctx context.Context) error {
	if !slices.ContainsFunc(c.blocks, func(b captureBlock) bool { return len(b.Interface)+len(b.Tap) > 0 }) {
		<-ctx.Done()
		return nil
	}
	return capture.WatchLinks(ctx, func(name string, gone bool) {
		if gone {
			c.lost(name)
		}
		c.reconsider()
	})
}

// lost closes the capture of an interface that is gone.
func (c *captures) lost(name string) {
	if c.isTap(name) {
		return // it was moved
	}
	if oc := c.take("interface " + name); oc != nil {
		c.endFor(oc)
	}
}
