package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// poolModel is what a Pool must be, said plainly: for each life of a sandbox,
// every address that was ever answered and the name it was answered for.
type poolModel struct {
	o     PoolOptions
	store *memoryStore
	pool  *Pool
	lives map[string]map[netip.Addr]string
	dead  map[string]bool
}

// TestPoolModel drives a small Pool through leases, failing writes, restarts
// and ends of sandboxes.
func TestPoolModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &poolModel{store: newMemoryStore(), lives: map[string]map[netip.Addr]string{}, dead: map[string]bool{}}
		m.o = PoolOptions{
			Prefix4:   netip.MustParsePrefix("198.18.0.0/28"),
			Prefix6:   netip.MustParsePrefix("fd73:616c:6c79::/120"),
			Reserved:  []netip.Addr{netip.MustParseAddr("198.18.0.5"), netip.MustParseAddr("fd73:616c:6c79::7")},
			MaxLeases: rapid.IntRange(1, 20).Draw(rt, "cap"),
			Store:     m.store,
		}
		m.restart(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"lease":   m.lease,
			"fail":    m.fail,
			"forget":  m.forget,
			"restart": m.restart,
			"":        m.check,
		})
	})
}

func (m *poolModel) restart(t *rapid.T) {
	p, err := OpenPool(m.o)
	if err != nil {
		t.Fatalf("restart: %v", err)
	}
	m.pool = p
	m.dead = map[string]bool{}
}

func (m *poolModel) draw(t *rapid.T) (id, host string, v6 bool) {
	return fmt.Sprint("s", rapid.IntRange(0, 2).Draw(t, "sandbox")),
		fmt.Sprintf("h%d.test", rapid.IntRange(0, 24).Draw(t, "host")), rapid.Bool().Draw(t, "v6")
}

func (m *poolModel) lease(t *rapid.T) {
	id, host, v6 := m.draw(t)
	a, err := m.pool.Lease(id, host, v6)
	switch {
	case m.dead[id]:
		if !errors.Is(err, ErrEnded) {
			t.Fatalf("ended sandbox %s leased %s, %v", id, a, err)
		}
		return
	case errors.Is(err, ErrPoolExhausted):
		if n := len(m.kept(id)); n < min(m.o.MaxLeases, usable4) {
			t.Fatalf("exhausted after %d names", n)
		}
		return
	case err != nil:
		t.Fatalf("lease: %v", err)
	}
	m.record(t, id, host, a)
	if a.Is6() != v6 || !m.pool.Contains(a) {
		t.Fatalf("lease %s, v6 %v", a, v6)
	}
	off, _ := m.pool.offset(a)
	if off < firstLease || off == 5 || off == 7 {
		t.Fatalf("%s is not to be leased", a)
	}
}

// fail asks for a lease while the Store fails, with or without keeping it.
func (m *poolModel) fail(t *rapid.T) {
	id, host, v6 := m.draw(t)
	kept := rapid.Bool().Draw(t, "kept")
	down := errors.New("store is down")
	m.store.fail = func(string) (bool, error) { return kept, down }
	defer func() { m.store.fail = nil }()
	a, err := m.pool.Lease(id, host, v6)
	if err != nil {
		return
	}
	if !slices.Contains(m.kept(id), host) {
		t.Fatalf("%s has a lease %s that is not kept", host, a)
	}
	m.record(t, id, host, a)
}

func (m *poolModel) record(t *rapid.T, id, host string, a netip.Addr) {
	if m.lives[id] == nil {
		m.lives[id] = map[netip.Addr]string{}
	}
	if was := m.lives[id][a]; was != "" && was != host {
		t.Fatalf("%s: %s was %s and is now %s", id, a, was, host)
	}
	m.lives[id][a] = host
}

// forget ends a life. The model begins another under the same ID only after a
// restart, which the Pool cannot tell from a first one.
func (m *poolModel) forget(t *rapid.T) {
	id, _, _ := m.draw(t)
	if err := m.pool.Forget(id); err != nil {
		t.Fatalf("forget: %v", err)
	}
	m.dead[id] = true
	delete(m.lives, id)
}

// usable4 is how many leases a /28 has: not the network, the gateway, the
// denied names' and the broadcast address, nor the two reserved offsets.
const usable4 = 16 - 4 - 2

// kept is the names of id in the Store, answered or not.
func (m *poolModel) kept(id string) []string {
	var out []string
	for k := range m.store.buckets[bucketLeases] {
		if host, ok := strings.CutPrefix(k, id+"\x00"); ok {
			out = append(out, host)
		}
	}
	return out
}

func (m *poolModel) names(id string) map[string]bool {
	out := map[string]bool{}
	for _, host := range m.lives[id] {
		out[host] = true
	}
	return out
}

func (m *poolModel) check(t *rapid.T) {
	for id, life := range m.lives {
		if n := len(m.names(id)); n > m.o.MaxLeases {
			t.Fatalf("%s has %d names, cap %d", id, n, m.o.MaxLeases)
		}
		for a, host := range life {
			if got, ok := m.pool.Lookup(id, a); !ok || got != host {
				t.Fatalf("%s: %s is %q, want %q", id, a, got, host)
			}
		}
	}
}
