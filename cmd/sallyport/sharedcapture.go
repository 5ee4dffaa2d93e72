package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"sallyport/gateway"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
)

// ownNamespace is the network namespace of the gateway itself.
const ownNamespace = "/proc/self/ns/net"

// openShared captures the gateway's own namespace as one sandbox: a pod's,
// whose other containers it is beside.
func (c *captures) openShared(sandbox string) error {
	p := c.st.gateway.Policy().Sandbox(sandbox)
	if p == nil {
		return fmt.Errorf("the policy has no sandbox %q; it has %s", sandbox, strings.Join(c.st.gateway.Policy().Sandboxes(), ", "))
	}
	a := attachment{Sandbox: sandbox, NetNS: ownNamespace, Boot: bootID(), Declared: true}
	var err error
	if a.Inode, err = namespaceInode(ownNamespace); err != nil {
		return err
	}
	a.ID = c.attachedAs(a)
	const place = "shared"
	sockets, err := c.keeper.open(place, a.ID, capture.OpenShared)
	if err != nil {
		return err
	}
	sb, err := c.register(a, p)
	if err != nil {
		err = errors.Join(err, sockets.Close())
		c.keeper.forget(place)
		return err
	}
	in := gateway.NewInbound("shared", sockets, func(netip.Addr) (*identity.Sandbox, bool) { return sb, true })
	return c.add("netns "+sb.ID, &openCapture{in: in, place: place, attached: a})
}
