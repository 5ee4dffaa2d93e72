package dns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// load reads the leases in the Store and notes the pool's prefixes there. It
// stands for the Pool's law over restarts: what it cannot be sure of, it
// refuses.
func (p *Pool) load() error {
	err := p.o.Store.ForEach(bucketLeases, func(k, v []byte) error {
		id, host, ok := bytes.Cut(k, []byte{0})
		if !ok || len(id) == 0 || len(host) == 0 || len(v) != 4 {
			return fmt.Errorf("kept lease %q: not readable", k)
		}
		off := binary.BigEndian.Uint32(v)
		if off < firstLease || off-firstLease > maxKeptOffset {
			return fmt.Errorf("kept lease %q: offset %d is out of range", k, off)
		}
		l := p.sandboxes[string(id)]
		if l == nil {
			l = &leases{byHost: map[string]uint32{}}
			p.sandboxes[string(id)] = l
		}
		if i := int(off - firstLease); i < len(l.hosts) && l.hosts[i] != "" {
			return fmt.Errorf("kept lease %q: its offset belongs to %q", k, l.hosts[i])
		}
		l.put(string(host), off)
		return nil
	})
	if err != nil {
		return err
	}
	return p.notePrefixes()
}

// maxKeptOffset bounds the memory that one damaged record can ask for.
const maxKeptOffset = 1 << 24

// notePrefixes refuses a prefix that overlaps an earlier, differently placed
// one while there are leases: an address would come to mean another name to a
// sandbox that still lives. A prefix apart from the earlier ones is harmless:
// the addresses of old are then nobody's.
func (p *Pool) notePrefixes() error {
	var earlier []netip.Prefix
	err := p.o.Store.ForEach(bucketPools, func(k, _ []byte) error {
		prefix, err := netip.ParsePrefix(string(k))
		if err != nil {
			return fmt.Errorf("kept prefix: %w", err)
		}
		earlier = append(earlier, prefix)
		return nil
	})
	if err != nil {
		return err
	}
	for _, old := range earlier {
		for _, now := range []netip.Prefix{p.o.Prefix4, p.o.Prefix6} {
			if len(p.sandboxes) > 0 && old.Overlaps(now) && old.Addr() != now.Addr() {
				return fmt.Errorf("%s overlaps %s, from which live sandboxes have addresses; end them first or choose another", now, old)
			}
		}
		if len(p.sandboxes) == 0 {
			if err := p.o.Store.Delete(bucketPools, []byte(old.String())); err != nil {
				return fmt.Errorf("drop kept prefix %s: %w", old, err)
			}
		}
	}
	for _, now := range []netip.Prefix{p.o.Prefix4, p.o.Prefix6} {
		if err := p.o.Store.Put(bucketPools, []byte(now.String()), []byte{1}); err != nil {
			return fmt.Errorf("keep prefix %s: %w", now, err)
		}
	}
	return nil
}
