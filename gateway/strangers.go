package gateway

import (
	"net/netip"
	"sync"
)

const (
	// maxStrangers is how many connections of a gateway may be without a
	// credential at a time, and maxFromOne how many of them from one place.
	maxStrangers = 1024
	maxFromOne   = 256
	// oneNetwork is how much of an IPv6 address tells places apart: who has
	// one has all of its network's.
	oneNetwork = 64
)

// strangers counts connections to explicit proxies that showed no credential
// yet, so that one client cannot keep out the others.
type strangers struct {
	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
}

// enter counts a connection from a, which leaves in any case, and says
// whether there is room for it.
func (s *strangers) enter(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from = map[netip.Addr]int{}
	}
	s.all++
	s.from[place(a)]++
	return s.all <= maxStrangers && s.from[place(a)] <= maxFromOne
}

func (s *strangers) leave(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[place(a)]--; s.from[place(a)] <= 0 {
		delete(s.from, place(a))
	}
}

func (s *strangers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func place(a netip.Addr) netip.Addr {
	if a = a.Unmap(); !a.Is6() {
		return a
	}
	p, err := a.WithZone("").Prefix(oneNetwork)
	if err != nil {
		return a
	}
	return p.Addr()
}
