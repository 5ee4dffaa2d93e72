package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"sallyport/gateway"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
)

// captures are the ways in that a daemon holds open.
type captures struct {
	st      *stack
	blocks  []captureBlock
	runtime string // folder
	engines []*engineCapture

	keeper *keeper // of listening sockets, over a restart; may be nil

	// openNamespace is capture.OpenNamespace; tests have another.
	openNamespace func(path string, o capture.NamespaceOptions) (*capture.Sockets, error)

	mu      sync.Mutex
	open    map[string]*openCapture  // by key: "netns ID" or "interface NAME"; nil after close
	held    map[string]chan struct{} // containers that are being changed, or looked at; closed when that is over
	asking  map[string]*bool         // containers that an engine is being asked about; set when its answer is void
	late    map[string]bool          // sandboxes of containers that had gone at the last look; of watchEnds alone
	serving bool
}

type openCapture struct {
	in       *gateway.Inbound
	place    string         // of keeper; "" its sockets are not kept
	attached attachment     // of a namespace
	sources  []netip.Prefix // of an interface
	macs     map[netip.Prefix][]net.HardwareAddr
	expiry   *time.Timer // ends a narrowed sandbox; nil without a time
	stop     func()      // nil until it is served
}

// openCaptures opens what the daemon file names and what was attached before
// a restart.
func (d *daemonProcess) openCaptures() error {
	c := &d.captures
	c.st, c.blocks, c.runtime = d.stack, d.file.Captures, d.runtime
	c.openNamespace, c.keeper = capture.OpenNamespace, d.keeper
	c.open, c.held, c.asking = map[string]*openCapture{}, map[string]chan struct{}{}, map[string]*bool{}
	for _, b := range c.blocks {
		if err := c.openBlock(b); err != nil {
			return b.at(err)
		}
	}
	if err := c.reattach(); err != nil {
		return err
	}
	c.keeper.forgetRest()
	return nil
}

func (c *captures) openBlock(b captureBlock) error {
	switch {
	case b.NetNS != "":
		_, err := c.attach(attachment{Sandbox: b.Sandbox, NetNS: namespacePath(b.NetNS), Declared: true})
		return err
	case b.Listen != "":
		return c.openProxy(b)
	case b.Shared:
		return c.openShared(b.Sandbox)
	case b.Engine != "":
		c.engines = append(c.engines, newEngineCapture(c, b))
		return nil
	}
	if len(b.Tap) > 0 {
		return c.openTaps(b)
	}
	return c.openInterfaces(b)
}

// errClosed says that the daemon is about to end.
var errClosed = errors.New("the gateway is stopping")

// add takes a capture in, and serves it if the daemon serves already.
func (c *captures) add(key string, oc *openCapture) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		oc.end()
		return errClosed
	}
	c.open[key] = oc
	c.endAtExpiry(oc)
	if c.serving {
		c.start(oc)
	}
	return nil
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

// reconsider looks again at interfaces and containers, after a reload or a new
// link.
func (c *captures) reconsider() {
	c.reconsiderInterfaces()
	set := c.st.gateway.Policy()
	ended, err := c.st.sandboxes.Retain(func(s *identity.Sandbox, _ string) bool { return set.Sandbox(s.Policy) != nil })
	if err != nil {
		c.st.settings.log.Error("claims of sandboxes that are gone were not dropped", "error", err)
	}
	for _, s := range ended {
		c.st.gateway.Forget(s.ID)
	}
	c.reconsiderProxies()
	for _, e := range c.engines {
		e.lookAgain()
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

// take removes and returns an open capture, or nil.
func (c *captures) take(key string) *openCapture {
	c.mu.Lock()
	defer c.mu.Unlock()
	oc := c.open[key]
	delete(c.open, key)
	return oc
}

// endFor ends a capture for good: what comes from then on is refused, and waits
// for no other process.
func (c *captures) endFor(oc *openCapture) {
	oc.end()
	c.keeper.forget(oc.place)
}

// end stops serving, which closes the sockets, or closes them itself.
func (oc *openCapture) end() {
	if oc.expiry != nil {
		oc.expiry.Stop()
	}
	if oc.stop != nil {
		oc.stop()
		return
	}
	oc.in.Close()
}
