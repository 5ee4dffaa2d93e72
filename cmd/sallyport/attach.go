package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
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
	Inode    uint64            `json:"inode"`            // of the namespace: a new one at the same path is another sandbox
	Cookie   uint64            `json:"cookie,omitempty"` // of the namespace, where the kernel has one: inodes are given again
	Boot     string            `json:"boot"`
	Labels   map[string]string `json:"labels,omitempty"`
	Declared bool              `json:"declared,omitempty"` // by the daemon file

	Container string `json:"container,omitempty"` // ID that its engine gave it
	Engine    string `json:"engine,omitempty"`    // name of the capture that found it; "" if a hook did
	Removed   bool   `json:"removed,omitempty"`   // by "sandbox rm", while the container ran on

	Narrow *narrowed `json:"narrow,omitempty"` // of Sandbox, for one job; nil: all of it

	kept bool // as it is, in the state
}

const attachedBucket = "attached"

// identify fills in what tells the namespace from every other.
func (a *attachment) identify() (err error) {
	if a.Inode, err = namespaceInode(a.NetNS); err != nil {
		return err
	}
	if a.Cookie, err = capture.NamespaceCookie(a.NetNS); err != nil {
		return fmt.Errorf("network namespace %s: %w", a.NetNS, err)
	}
	a.Boot = bootID()
	return nil
}

// place is where the sockets of the namespace are kept. Without a number that is
// given but once there is none.
func (a attachment) place() string {
	if a.Cookie == 0 {
		return ""
	}
	return keptPlace("netns", strconv.FormatUint(a.Cookie, 16))
}

// same says whether a and b are the same namespace.
func (a attachment) same(b attachment) bool {
	return a.Inode == b.Inode && a.Cookie == b.Cookie && a.Boot == b.Boot
}

// describe names what was attached, for a record.
func (a attachment) describe() string {
	if a.Container != "" {
		return fmt.Sprintf("container %.12s", a.Container)
	}
	return "namespace " + a.NetNS
}

// where says in what a sandbox is captured or, by a capture that is no longer
// in the daemon file, was.
func (c *captures) where(sb *identity.Sandbox) string {
	if a, ok := c.attachedAt(sb.ID); ok {
		if a.Declared && a.NetNS == ownNamespace {
			return "shared"
		}
		return a.describe()
	}
	if address, ok := c.proxyOf(sb); ok {
		return proxyInterface + address
	}
	if name := sb.Labels[identity.LabelInterface]; name != "" {
		return "interface " + name
	}
	return ""
}

// attach opens a namespace as the sandbox that a names. The same namespace
// under the same sandbox keeps its ID.
func (c *captures) attach(a attachment) (*identity.Sandbox, error) {
	p := c.st.gateway.Policy().Sandbox(a.Sandbox)
	if p == nil {
		return nil, fmt.Errorf("the policy has no sandbox %q; it has %s", a.Sandbox, strings.Join(c.st.gateway.Policy().Sandboxes(), ", "))
	}
	if err := a.identify(); err != nil {
		return nil, err
	}
	if a.ID == "" {
		a.ID = c.attachedAs(a)
	}
	sockets, err := c.keeper.open(a.place(), a.ID, func(k *capture.Kept) (*capture.Sockets, error) {
		return c.openNamespace(a.NetNS, capture.NamespaceOptions{Interface: a.describe(), Kept: k})
	})
	if err != nil {
		for _, other := range c.attachments() {
			if other.same(a) {
				return nil, fmt.Errorf("%s is attached already, as sandbox %q with the id %s; to attach it anew, end that first: sallyport sandbox rm %s", a.describe(), other.Sandbox, other.ID, other.ID)
			}
		}
		return nil, err
	}
	sb, err := c.register(a, p)
	if err != nil {
		err = errors.Join(err, sockets.Close())
		c.keeper.forget(a.place())
		return nil, err
	}
	in := gateway.NewInbound(a.describe(), sockets, func(netip.Addr) (*identity.Sandbox, bool) { return sb, true })
	return sb, c.add("netns "+sb.ID, &openCapture{in: in, place: a.place(), attached: a})
}

// register keeps a and begins, or takes up again, the sandbox's life.
func (c *captures) register(a attachment, p *policy.Sandbox) (*identity.Sandbox, error) {
	labels := map[string]string{}
	maps.Copy(labels, p.Labels)
	maps.Copy(labels, a.Labels)
	sb := identity.Sandbox{Name: a.Sandbox, ID: a.ID, Policy: a.Sandbox, Labels: labels}
	if err := a.Narrow.apply(&sb); err != nil {
		return nil, err
	}
	if err := c.st.sandboxes.Add(sb); err != nil {
		return nil, err
	}
	var err error
	if !a.kept {
		err = c.keep(a)
	}
	if err == nil {
		err = c.st.record(&sb, "attached to "+a.describe()+a.Narrow.describe(), nil)
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
	if a.Narrow != nil {
		return audit.NewID() // another job is another life
	}
	for _, old := range c.kept() {
		if old.Narrow == nil && old.Sandbox == a.Sandbox && old.NetNS == a.NetNS && old.same(a) && !old.Removed && c.st.sandboxes.ByID(old.ID) == nil {
			return old.ID
		}
	}
	return audit.NewID()
}

// keep puts a in the state.
func (c *captures) keep(a attachment) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return c.st.state.Put(attachedBucket, []byte(a.ID), b)
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
	var again []attachment
	for _, a := range c.kept() {
		if c.st.sandboxes.ByID(a.ID) != nil {
			continue // the daemon file named it
		}
		now := attachment{NetNS: a.NetNS}
		gone := now.identify() != nil || !now.same(a)
		if !gone && a.Removed {
			continue
		}
		if gone || a.Declared || !c.watched(a) || a.Narrow.over(time.Now()) {
			if err := c.endedMeanwhile(a); err != nil {
				return err
			}
			continue
		}
		a.kept = true
		again = append(again, a)
	}
	// Each waits for the disk: together they wait once.
	inParallel(again, func(a attachment) {
		if _, err := c.attach(a); err != nil {
			c.st.settings.log.Error("sandbox was not attached again; it has no network", "sandbox", a.Sandbox, "netns", a.NetNS, "error", err)
		}
	})
	return nil
}

// inParallel calls f for each of a list, for many at once.
func inParallel[T any](list []T, f func(T)) {
	const most = 64
	work := make(chan T)
	var running sync.WaitGroup
	for range min(most, len(list)) {
		running.Go(func() {
			for x := range work {
				f(x)
			}
		})
	}
	for _, x := range list {
		work <- x
	}
	close(work)
	running.Wait()
}

// watched says whether the engine that a container was found by is still one
// of the daemon file. What has no engine needs none.
func (c *captures) watched(a attachment) bool {
	return a.Engine == "" || slices.ContainsFunc(c.engines, func(e *engineCapture) bool { return e.name == a.Engine })
}

// endedMeanwhile ends what was attached before a restart and is no more.
func (c *captures) endedMeanwhile(a attachment) error {
	if !a.Removed {
		sb := &identity.Sandbox{Name: a.Sandbox, ID: a.ID, Labels: a.Labels}
		a.Narrow.name(sb)
		if err := c.st.record(sb, "ended while the gateway was down: "+a.describe(), nil); err != nil {
			return err
		}
	}
	return errors.Join(c.unpin(a.NetNS), c.forget(a.ID))
}

// detach ends a sandbox that was attached, by its ID or its container's. A
// container that runs on is not attached again.
func (c *captures) detach(id string) error {
	a, _ := c.attachedAt(id)
	if a.Container != "" {
		defer c.holdFirst(a.Container)()
		if a, _ = c.attachedAt(id); a.ID == "" {
			return fmt.Errorf("no attached sandbox has the id %q", id)
		}
		id = a.ID
	}
	return c.endAttached(id, "detached", true)
}

// attachedAt returns what is attached under the ID of a sandbox or of a
// container.
func (c *captures) attachedAt(id string) (attachment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if oc := c.open["netns "+id]; oc != nil {
		return oc.attached, true
	}
	for _, oc := range c.open {
		if a := oc.attached; id != "" && (a.ID == id || a.Container == id) {
			return a, true
		}
	}
	return attachment{}, false
}

// endAttached ends an attached sandbox. remember keeps in mind that its
// container is not wanted.
func (c *captures) endAttached(id, why string, remember bool) error {
	oc := c.take("netns " + id)
	if oc == nil {
		return fmt.Errorf("no attached sandbox has the id %q", id)
	}
	c.endFor(oc)
	if err := c.unpin(oc.attached.NetNS); err != nil {
		c.st.settings.log.Warn("namespace that was held was not let go of", "netns", oc.attached.NetNS, "error", err)
	}
	sb := c.st.sandboxes.ByID(id)
	c.st.gateway.Forget(id)
	if _, err := c.st.sandboxes.Remove(id); err != nil {
		return err
	}
	if sb != nil {
		if err := c.st.record(sb, why, nil); err != nil {
			return err
		}
	}
	if remember && oc.attached.Engine != "" {
		a := oc.attached
		a.Removed = true
		return errors.Join(c.st.pool.Forget(id), c.keep(a))
	}
	return c.forget(id)
}

// forget drops what is kept of a life that has ended.
func (c *captures) forget(id string) error {
	return errors.Join(c.st.state.Delete(attachedBucket, []byte(id)), c.st.pool.Forget(id))
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
