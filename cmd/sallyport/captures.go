package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
	"sallyport/policy"
)

// captures are the ways in that a daemon holds open.
type captures struct {
	st     *stack
	blocks []captureBlock

	mu      sync.Mutex
	open    map[string]*openCapture // by key: "netns ID" or "interface NAME"
	serving bool
}

type openCapture struct {
	in      *gateway.Inbound
	sources []netip.Prefix // of an interface
	stop    func()         // nil until it is served
}

// openCaptures opens what the daemon file names and what was attached before
// a restart.
func (d *daemonProcess) openCaptures() error {
	c := &d.captures
	c.st, c.blocks, c.open = d.stack, d.file.Captures, map[string]*openCapture{}
	for _, b := range c.blocks {
		if err := c.openBlock(b); err != nil {
			return fmt.Errorf("%s:%d: capture %q: %w", b.Range.Filename, b.Range.Start.Line, b.Name, err)
		}
	}
	return c.reattach()
}

func (c *captures) openBlock(b captureBlock) error {
	switch {
	case b.NetNS != "" && len(b.Interface) > 0:
		return errors.New("has both netns and interface")
	case b.NetNS != "":
		if b.Sandbox == "" {
			return errors.New(`netns needs the sandbox that it is: sandbox = "NAME"`)
		}
		_, err := c.attach(attachment{Sandbox: b.Sandbox, NetNS: namespacePath(b.NetNS), Declared: true})
		return err
	case len(b.Interface) > 0:
		if os.Geteuid() != 0 {
			return errors.New("an interface needs root (CAP_NET_ADMIN)")
		}
		for _, text := range b.Address {
			if _, err := netip.ParsePrefix(text); err != nil {
				return fmt.Errorf("address: %w", err)
			}
		}
		return c.openInterfaces(b)
	}
	return errors.New("has neither interface nor netns")
}

// namespacePath is the path of a namespace given by name or by path.
func namespacePath(s string) string {
	if strings.Contains(s, "/") {
		return s
	}
	return filepath.Join("/run/netns", s)
}

// attachment is a namespace that stands for a sandbox. It is kept in the
// state, so that a restart finds it again.
type attachment struct {
	ID       string            `json:"id"`
	Sandbox  string            `json:"sandbox"`
	NetNS    string            `json:"netns"`
	Inode    uint64            `json:"inode"` // of the namespace: a new one at the same path is another sandbox
	Boot     string            `json:"boot"`
	Labels   map[string]string `json:"labels,omitempty"`
	Declared bool              `json:"declared,omitempty"` // by the daemon file
}

const attachedBucket = "attached"

// attach opens a namespace as the sandbox that a names. The same namespace
// under the same sandbox keeps its ID.
func (c *captures) attach(a attachment) (*identity.Sandbox, error) {
	p := c.st.gateway.Policy().Sandbox(a.Sandbox)
	if p == nil {
		return nil, fmt.Errorf("the policy has no sandbox %q; it has %s", a.Sandbox, strings.Join(c.st.gateway.Policy().Sandboxes(), ", "))
	}
	var err error
	if a.Inode, err = namespaceInode(a.NetNS); err != nil {
		return nil, err
	}
	a.Boot = bootID()
	if a.ID == "" {
		a.ID = c.attachedAs(a)
	}
	sockets, err := capture.OpenNamespace(a.NetNS, capture.NamespaceOptions{})
	if err != nil {
		return nil, err
	}
	sb, err := c.register(a, p)
	if err != nil {
		return nil, errors.Join(err, sockets.Close())
	}
	in := gateway.NewInbound("netns "+a.NetNS, sockets, func(netip.Addr) (*identity.Sandbox, bool) { return sb, true })
	c.add("netns "+sb.ID, &openCapture{in: in})
	return sb, nil
}

// register keeps a and begins, or takes up again, the sandbox's life.
func (c *captures) register(a attachment, p *policy.Sandbox) (*identity.Sandbox, error) {
	labels := maps.Clone(p.Labels)
	for k, v := range a.Labels {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[k] = v
	}
	sb := identity.Sandbox{Name: a.Sandbox, ID: a.ID, Policy: a.Sandbox, Labels: labels}
	if err := c.st.sandboxes.Add(sb); err != nil {
		return nil, err
	}
	b, err := json.Marshal(a)
	if err == nil {
		err = c.st.state.Put(attachedBucket, []byte(a.ID), b)
	}
	if err == nil {
		err = c.st.record(&sb, "attached to namespace "+a.NetNS, nil)
	}
	if err != nil {
		_, rerr := c.st.sandboxes.Remove(a.ID)
		return nil, errors.Join(err, rerr)
	}
	return c.st.sandboxes.ByID(sb.ID), nil
}

// attachedAs returns the ID that this namespace had as this sandbox, or a
// new one.
func (c *captures) attachedAs(a attachment) string {
	id := audit.NewID()
	for _, old := range c.kept() {
		if old.Sandbox == a.Sandbox && old.NetNS == a.NetNS && old.Inode == a.Inode && old.Boot == a.Boot && c.st.sandboxes.ByID(old.ID) == nil {
			id = old.ID
		}
	}
	return id
}

// kept are the attachments in the state.
func (c *captures) kept() []attachment {
	var out []attachment
	err := c.st.state.ForEach(attachedBucket, func(_, v []byte) error {
		var a attachment
		if err := json.Unmarshal(v, &a); err != nil {
			return err
		}
		out = append(out, a)
		return nil
	})
	if err != nil {
		c.st.settings.log.Error("attachments cannot be read", "error", err)
	}
	return out
}

// reattach takes up what was attached before a restart. A namespace that is
// gone ends its sandbox.
func (c *captures) reattach() error {
	for _, a := range c.kept() {
		if c.st.sandboxes.ByID(a.ID) != nil {
			continue // the daemon file named it
		}
		inode, err := namespaceInode(a.NetNS)
		if a.Declared || err != nil || inode != a.Inode || a.Boot != bootID() {
			if err := c.forget(a.ID); err != nil {
				return err
			}
			continue
		}
		if _, err := c.attach(a); err != nil {
			c.st.settings.log.Error("sandbox was not attached again; it has no network", "sandbox", a.Sandbox, "netns", a.NetNS, "error", err)
		}
	}
	return nil
}

// detach ends a sandbox that was attached.
func (c *captures) detach(id string) error {
	c.mu.Lock()
	oc := c.open["netns "+id]
	delete(c.open, "netns "+id)
	c.mu.Unlock()
	if oc == nil {
		return fmt.Errorf("no attached sandbox has the id %q", id)
	}
	oc.end()
	sb := c.st.sandboxes.ByID(id)
	c.st.gateway.Forget(id)
	if _, err := c.st.sandboxes.Remove(id); err != nil {
		return err
	}
	if sb != nil {
		if err := c.st.record(sb, "detached", nil); err != nil {
			return err
		}
	}
	return c.forget(id)
}

// forget drops what is kept of a life that has ended.
func (c *captures) forget(id string) error {
	return errors.Join(c.st.state.Delete(attachedBucket, []byte(id)), c.st.pool.Forget(id))
}

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
	sources := sourcesOn(c.st.gateway.Policy(), name)
	c.mu.Lock()
	old := c.open["interface "+name]
	c.mu.Unlock()
	if old != nil && slices.Equal(old.sources, sources) {
		return nil
	}
	if len(sources) == 0 {
		c.st.settings.log.Warn("no sandbox of the policy matches the interface; what comes from it is refused", "interface", name)
		sources = nil
	}
	if old != nil {
		old.end()
	}
	o := capture.InterfaceOptions{Interface: name, Sources: sources}
	for _, text := range b.Address {
		if p, err := netip.ParsePrefix(text); err == nil {
			o.Gateway = append(o.Gateway, p)
		}
	}
	if len(sources) == 0 { // an address that nobody has: all is spoofed
		o.Sources = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")}
	}
	sockets, err := capture.OpenInterface(o)
	if err != nil {
		return err
	}
	in := gateway.NewInbound("interface "+name, sockets, func(src netip.Addr) (*identity.Sandbox, bool) { return c.claim(name, src) })
	c.add("interface "+name, &openCapture{in: in, sources: sources})
	return nil
}

// claim says which sandbox speaks from src on an interface.
func (c *captures) claim(iface string, src netip.Addr) (*identity.Sandbox, bool) {
	set := c.st.gateway.Policy()
	if set == nil {
		return nil, false
	}
	sb, err := c.st.sandboxes.Claim(identity.Traffic{Interface: iface, Addr: src.Unmap()}, set.Claim, audit.NewID)
	if err != nil && !errors.Is(err, identity.ErrUnclaimed) {
		c.st.settings.log.Error("claim was not kept; the traffic is refused", "interface", iface, "error", err)
	}
	return sb, err == nil
}

// sourcesOn are the addresses from which some sandbox of the policy may send
// on an interface.
func sourcesOn(set *policy.Set, iface string) []netip.Prefix {
	var out []netip.Prefix
	for _, name := range set.Sandboxes() {
		m := set.Sandbox(name).Match
		if len(m.Interfaces) > 0 && !matchesAny(m.Interfaces, iface) {
			continue
		}
		switch {
		case len(m.CIDRs) > 0:
			out = append(out, m.CIDRs...)
		case len(m.Interfaces) > 0 || len(m.MACs) > 0:
			out = append(out, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Compare(b) })
	return slices.Compact(out)
}

// add takes a capture in, and serves it if the daemon serves already.
func (c *captures) add(key string, oc *openCapture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[key] = oc
	if c.serving {
		c.start(oc)
	}
}

func (c *captures) start(oc *openCapture) {
	oc.stop = background(c.st.settings.log, oc.in.Name, func(ctx context.Context) error { return c.st.gateway.Serve(ctx, oc.in) })
}

// serve begins to serve what is open.
func (c *captures) serve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = true
	for _, oc := range c.open {
		c.start(oc)
	}
}

// reconsider looks again at the interfaces, after a reload or a new link.
func (c *captures) reconsider() {
	for _, b := range c.blocks {
		if len(b.Interface) == 0 {
			continue
		}
		if err := c.openInterfaces(b); err != nil {
			c.st.settings.log.Error("interface was not opened; what comes from it is refused", "capture", b.Name, "error", err)
		}
	}
	set := c.st.gateway.Policy()
	ended, err := c.st.sandboxes.Retain(func(s *identity.Sandbox, _ string) bool { return set.Sandbox(s.Policy) != nil })
	if err != nil {
		c.st.settings.log.Error("claims of sandboxes that are gone were not dropped", "error", err)
	}
	for _, s := range ended {
		c.st.gateway.Forget(s.ID)
	}
}

// watchLinks opens interfaces that appear, until ctx ends.
func (c *captures) watchLinks(ctx context.Context) error {
	if !slices.ContainsFunc(c.blocks, func(b captureBlock) bool { return len(b.Interface) > 0 }) {
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
	c.mu.Lock()
	oc := c.open["interface "+name]
	delete(c.open, "interface "+name)
	c.mu.Unlock()
	if oc != nil {
		oc.end()
	}
}

// close ends every capture. The rules in the kernel stay.
func (c *captures) close() {
	c.mu.Lock()
	open := c.open
	c.open, c.serving = nil, false
	c.mu.Unlock()
	for _, oc := range open {
		oc.end()
	}
}

// end stops serving, which closes the sockets, or closes them itself.
func (oc *openCapture) end() {
	if oc.stop != nil {
		oc.stop()
		return
	}
	oc.in.Close()
}

// namespaceInode identifies the network namespace at path.
func namespaceInode(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("network namespace %s has no inode", path)
	}
	return st.Ino, nil
}

// bootID tells one boot of the machine from another; inodes of namespaces
// mean nothing over a boot.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return strconv.FormatInt(time.Now().UnixNano(), 36) // never equal: nothing is taken up again
	}
	return strings.TrimSpace(string(b))
}
