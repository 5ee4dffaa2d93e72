package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
)

// proxyInterface is what a sandbox that is known by its credential at an
// explicit proxy has in the place of an interface.
const proxyInterface = "proxy "

// openProxy listens for clients of an explicit proxy, which is one sandbox's
// or, without a name, every sandbox's of the policy.
func (c *captures) openProxy(b captureBlock) error {
	if set := c.st.gateway.Policy(); b.Sandbox != "" && set.Sandbox(b.Sandbox) == nil {
		return fmt.Errorf("the policy has no sandbox %q; it has %s", b.Sandbox, strings.Join(set.Sandboxes(), ", "))
	}
	place := keptPlace("proxy", b.Name)
	sockets, err := c.keeper.open(place, "", func(k *capture.Kept) (*capture.Sockets, error) {
		l, reused, err := capture.Listen(b.Listen, k)
		return &capture.Sockets{TCP: []net.Listener{l}, Reused: reused}, err
	})
	if err != nil {
		return err
	}
	l := sockets.TCP[0]
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		c.st.settings.log.Warn("the proxy can be reached from other hosts; credentials go over the network in clear text", "capture", b.Name, "listen", l.Addr())
	}
	in := &gateway.Inbound{Name: proxyInterface + b.Name, TCP: []net.Listener{l},
		Identify: func(netip.Addr) (*identity.Sandbox, bool) { return nil, false },
		Owner: func(user, password string) (*identity.Sandbox, bool) {
			if !c.mayProxy(b, user) || !proxyPasswordIs(c.st.loader.key, user, password) {
				return nil, false
			}
			return c.claimProxy(b, user)
		}}
	if err := c.add(in.Name, &openCapture{in: in, place: place}); err != nil {
		return err
	}
	c.claimProxies(b)
	return nil
}

// mayProxy says whether the sandbox of a name may use the proxy of b.
func (c *captures) mayProxy(b captureBlock, name string) bool {
	return (b.Sandbox == "" || b.Sandbox == name) && c.st.gateway.Policy().Sandbox(name) != nil
}

// claimProxies begins the lives of the sandboxes that may use the proxy of b,
// so that "sandbox ls" shows them before they speak.
func (c *captures) claimProxies(b captureBlock) {
	names := []string{b.Sandbox}
	if set := c.st.gateway.Policy(); b.Sandbox == "" {
		names = set.Sandboxes()
	} else if set.Sandbox(b.Sandbox) == nil {
		return // a reload took it away
	}
	if err := c.st.sandboxes.ClaimAll(proxyInterface+b.Name, names, audit.NewID); err != nil {
		c.st.settings.log.Error("claims were not kept; each is tried again with its first client", "capture", b.Name, "error", err)
	}
}

func (c *captures) claimProxy(b captureBlock, name string) (*identity.Sandbox, bool) {
	sb, err := c.st.sandboxes.Claim(identity.Traffic{Interface: proxyInterface + b.Name},
		func(string, netip.Addr, string) (string, bool) { return name, true }, audit.NewID)
	if err != nil {
		c.st.settings.log.Error("claim was not kept; the client is refused", "capture", b.Name, "sandbox", name, "error", err)
	}
	return sb, err == nil
}

// reconsiderProxies takes in the sandboxes that a reload has brought.
func (c *captures) reconsiderProxies() {
	for _, b := range c.blocks {
		if b.Listen != "" {
			c.claimProxies(b)
		}
	}
}

// proxyOf returns the address of the proxy that sb is known by, if it is.
func (c *captures) proxyOf(sb *identity.Sandbox) (string, bool) {
	name, ok := strings.CutPrefix(sb.Labels[identity.LabelInterface], proxyInterface)
	if !ok {
		return "", false
	}
	i := slices.IndexFunc(c.blocks, func(b captureBlock) bool { return b.Listen != "" && b.Name == name })
	if i < 0 {
		return "", false
	}
	return c.blocks[i].Listen, true
}

// proxyPassword is a sandbox's credential at explicit proxies. It is derived,
// so that "env" can tell it without the daemon, and lets its holder do what
// the sandbox may do.
func proxyPassword(key []byte, sandbox string) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("proxy credential\x00" + sandbox))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

func proxyPasswordIs(key []byte, sandbox, password string) bool {
	return len(key) > 0 && subtle.ConstantTimeCompare([]byte(password), []byte(proxyPassword(key, sandbox))) == 1
}

// addProxy adds the variables that make clients use a proxy as sandbox.
func addProxy(env map[string]string, address, sandbox string, key []byte) {
	u := url.URL{Scheme: "http", Host: address, User: url.UserPassword(sandbox, proxyPassword(key, sandbox))}
	maps.Copy(env, map[string]string{
		"HTTP_PROXY": u.String(), "http_proxy": u.String(), "HTTPS_PROXY": u.String(), "https_proxy": u.String(),
		"NO_PROXY": "", "no_proxy": "",
	})
	u.Scheme = "socks5h" // the name goes to the proxy, not to a resolver
	env["ALL_PROXY"], env["all_proxy"] = u.String(), u.String()
}
