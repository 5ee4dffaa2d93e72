//go:build linux

package capture

import "golang.org/x/sys/unix"

// class is a group of refused packets with one counter, one limit of its log
// and one way of refusing, so that a flood of one does not hide another.
type class uint8

// The classes. Their order is that of the rules; classOther takes what no other
// took.
const (
	classTCP class = iota
	classUDP
	classICMP
	classICMP6
	classOther
	classSpoof
	classes // how many there are
)

// String returns the name of c as counters and log prefixes carry it.
func (c class) String() string {
	return [classes]string{"tcp", "udp", "icmp", "icmp6", "other", "spoof"}[c]
}

// protocol returns the one protocol of all packets of c, or 0.
func (c class) protocol() uint8 {
	return [classes]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, 0, 0}[c]
}

func (c class) verdict() string {
	if c == classSpoof {
		return VerdictSpoof
	}
	return VerdictDeny
}

func classNamed(name string) (class, bool) {
	for c := range classes {
		if c.String() == name {
			return c, true
		}
	}
	return 0, false
}
