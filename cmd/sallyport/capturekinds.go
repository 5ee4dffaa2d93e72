package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// captureBlock is one way in. Which kind it is, one of the attributes netns,
// interface, shared, tap, engine and listen says.
type captureBlock struct {
	Name      string    `hcl:"name,label"`
	Interface []string  `hcl:"interface,optional"` // globs
	Address   []string  `hcl:"address,optional"`   // the gateway's own on those interfaces, with prefix length
	Peers     bool      `hcl:"peers,optional"`     // on a bridge: containers may speak to one another
	NetNS     string    `hcl:"netns,optional"`     // name below /run/netns, or a path
	Sandbox   string    `hcl:"sandbox,optional"`   // of netns and shared
	Engine    string    `hcl:"engine,optional"`    // docker or podman
	Socket    string    `hcl:"socket,optional"`    // of the engine
	Tap       []string  `hcl:"tap,optional"`       // links of virtual machines, in namespaces of their own
	Owner     string    `hcl:"owner,optional"`     // user who may open the taps
	Listen    string    `hcl:"listen,optional"`    // address:port of an explicit proxy
	Shared    bool      `hcl:"shared,optional"`    // the gateway's own namespace, but for the gateway
	Range     hcl.Range `hcl:",def_range"`
}

// engineSockets are the engines and where they listen by default.
func engineSockets() map[string]string {
	return map[string]string{"docker": "/var/run/docker.sock", "podman": "/run/podman/podman.sock"}
}

func (b captureBlock) socket() string {
	if b.Socket != "" {
		return b.Socket
	}
	return engineSockets()[b.Engine]
}

// captureKind is what a block of one kind may say besides.
type captureKind struct {
	has   bool
	takes []string
}

// kinds are the kinds of capture, by the attribute that makes a block one.
func (b captureBlock) kinds() map[string]captureKind {
	return map[string]captureKind{
		"netns":     {b.NetNS != "", []string{"sandbox"}},
		"interface": {len(b.Interface) > 0, []string{"address", "peers"}},
		"shared":    {b.Shared, []string{"sandbox"}},
		"tap":       {len(b.Tap) > 0, []string{"address", "owner"}},
		"engine":    {b.Engine != "", []string{"socket"}},
		"listen":    {b.Listen != "", []string{"sandbox"}},
	}
}

// given are the attributes of a block that belong to some kinds alone.
func (b captureBlock) given() []string {
	var out []string
	for _, a := range []struct {
		name string
		has  bool
	}{
		{"sandbox", b.Sandbox != ""}, {"address", len(b.Address) > 0}, {"peers", b.Peers}, {"socket", b.Socket != ""}, {"owner", b.Owner != ""},
	} {
		if a.has {
			out = append(out, a.name)
		}
	}
	return out
}

// check says what is wrong with a block.
func (b captureBlock) check() error {
	var is []string
	var kind captureKind
	for name, k := range b.kinds() {
		if k.has {
			is, kind = append(is, name), k
		}
	}
	slices.Sort(is)
	switch len(is) {
	case 0:
		return errors.New("has none of interface, tap, netns, engine, listen, shared")
	case 1:
	default:
		return fmt.Errorf("has both %s", strings.Join(is, " and "))
	}
	for _, name := range b.given() {
		if !slices.Contains(kind.takes, name) {
			return fmt.Errorf("%s does not go with %s", name, is[0])
		}
	}
	if (b.NetNS != "" || b.Shared) && b.Sandbox == "" {
		return fmt.Errorf(`%s needs the sandbox that it is: sandbox = "NAME"`, is[0])
	}
	if _, known := engineSockets()[b.Engine]; b.Engine != "" && !known {
		return fmt.Errorf("engine %q is none of docker, podman", b.Engine)
	}
	if _, port, err := net.SplitHostPort(b.Listen); b.Listen != "" && (err != nil || port == "") {
		return fmt.Errorf("listen %q: not of the form 127.0.0.1:3128", b.Listen)
	}
	for _, text := range b.Address {
		if _, err := netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("address %q: not of the form 10.77.4.1/24", text)
		}
	}
	return nil
}
