package gateway

import (
	"net/netip"
	"slices"
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

// strangers are the connections to explicit proxies that showed no credential
// yet. Where there is no room for one more, the one that has had the longest
// time to show one gives way, of those places that have the most: who keeps
// connections open without a word keeps nobody out.
type strangers struct {
	mu   sync.Mutex
	all  int
	seq  uint64
	from map[netip.Addr][]*stranger // by place, the oldest first
}

// stranger is one of them.
type stranger struct {
	place netip.Addr
	seq   uint64
	away  func() // ends the connection, which gives way
}

// enter takes in a connection from a, which leaves in any case, and ends
// another if there is no room for both.
func (s *strangers) enter(a netip.Addr, away func()) *stranger {
	s.mu.Lock()
	if s.from == nil {
		s.from = map[netip.Addr][]*stranger{}
	}
	s.all++
	s.seq++
	x := &stranger{place: place(a), seq: s.seq, away: away}
	s.from[x.place] = append(s.from[x.place], x)
	var gives *stranger
	switch {
	case len(s.from[x.place]) > maxFromOne:
		gives = s.from[x.place][0]
	case s.all > maxStrangers:
		gives = s.crowded()[0]
	}
	s.remove(gives)
	s.mu.Unlock()
	if gives != nil {
		gives.away()
	}
	return x
}

// crowded are the strangers of the place that has the most of them; of places
// with as many, of the one that waits the longest.
func (s *strangers) crowded() (most []*stranger) {
	for _, list := range s.from {
		if len(list) > len(most) || len(list) == len(most) && list[0].seq < most[0].seq {
			most = list
		}
	}
	return most
}

func (s *strangers) leave(x *stranger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(x)
}

// remove forgets x, unless that was done before.
func (s *strangers) remove(x *stranger) {
	if x == nil {
		return
	}
	list := s.from[x.place]
	i := slices.Index(list, x)
	if i < 0 {
		return
	}
	s.all--
	if s.from[x.place] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(s.from, x.place)
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
