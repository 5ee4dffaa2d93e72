package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// gatewayHost is the name of Pool.Gateway.
const gatewayHost = "sallyport.internal"

// Special answers the names that are no matter of policy, because they mean
// the asking machine itself or ask a resolver about itself. It reports false
// for every other name.
//
//	localhost, *.localhost   the loopback address (RFC 6761 section 6.3)
//	invalid                  NXDOMAIN (RFC 6761 section 6.4)
//	use-application-dns.net  NXDOMAIN: browsers then stay with this resolver
//	resolver.arpa            no data: no encrypted resolver to move to (RFC 9462)
//	ipv4only.arpa            no data: there is no NAT64 (RFC 8880)
func Special(q Question) (Answer, bool) {
	switch {
	case within(q.Host, "localhost"):
		return Answer{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}}, true
	case within(q.Host, "invalid"), q.Host == "use-application-dns.net":
		return Answer{RCode: dns.RcodeNameError}, true
	case within(q.Host, "resolver.arpa"), q.Host == "ipv4only.arpa":
		return Answer{NoData: true}, true
	}
	return Answer{}, false
}

// Unexplained reports whether a denied host is of a kind that resolvers make
// up by themselves: a single label, a name of the link (RFC 6762), or an
// allowed name with a search suffix behind it. Such a host is answered
// NXDOMAIN also where denied names have an address: the client goes on to the
// name it meant only after it heard that this one is not there.
func Unexplained(host string, allowed func(host string) bool) bool {
	if strings.IndexByte(host, '.') < 0 || within(host, "local") {
		return true
	}
	for i := range len(host) {
		if host[i] == '.' && allowed(host[:i]) {
			return true
		}
	}
	return false
}

// Reverse answers a name under in-addr.arpa or ip6.arpa for the sandbox: a PTR
// to what the address stands for, or NXDOMAIN for an address that is neither
// leased, nor the gateway's, nor loopback. It reports false for other names.
func (p *Pool) Reverse(sandboxID string, q Question) (Answer, bool) {
	addr, reverse := reverseAddr(q.Host)
	if !reverse {
		return Answer{}, false
	}
	host, ok := p.Lookup(sandboxID, addr)
	switch {
	case ok:
	case addr.IsLoopback():
		host = "localhost"
	case addr == p.Gateway(false) || addr == p.Gateway(true):
		host = gatewayHost
	default:
		return Answer{RCode: dns.RcodeNameError}, true
	}
	return Answer{PTR: host}, true
}

// reverseAddr returns the address whose reverse name host is (RFC 1035 section
// 3.5, RFC 3596 section 2.5), and whether host is in a reverse zone at all.
func reverseAddr(host string) (addr netip.Addr, reverse bool) {
	switch {
	case within(host, "in-addr.arpa"):
		return reverse4(strings.TrimSuffix(host, ".in-addr.arpa")), true
	case within(host, "ip6.arpa"):
		return reverse6(strings.TrimSuffix(host, ".ip6.arpa")), true
	}
	return netip.Addr{}, false
}

func reverse4(s string) netip.Addr {
	labels := strings.SplitN(s, ".", 5)
	if len(labels) != 4 {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

func reverse6(s string) netip.Addr {
	if len(s) != 63 { // 32 nibbles and the dots between them
		return netip.Addr{}
	}
	var b [16]byte
	for i := range 32 {
		c := s[62-2*i]
		nibble := strings.IndexByte("0123456789abcdef", c)
		if nibble < 0 || (i > 0 && s[63-2*i] != '.') {
			return netip.Addr{}
		}
		b[i/2] |= byte(nibble) << (4 * (1 - i%2))
	}
	return netip.AddrFrom16(b)
}

// within reports whether host is zone or a name below it.
func within(host, zone string) bool {
	rest, ok := strings.CutSuffix(host, zone)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}
