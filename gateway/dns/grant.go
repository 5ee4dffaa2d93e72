package dns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// wish is a lease that somebody waits for. What follows size is guarded by
// granting.
type wish struct {
	host string
	size uint32 // what its offset is below
	done bool   // granted or refused
	err  error
}

// grant adds a lease for host at an offset below size. While one write to the
// Store is under way others gather, and share the next.
func (p *Pool) grant(l *leases, sandboxID, host string, size uint32) (uint32, error) {
	if host == "" || len(host) > maxName || strings.IndexByte(host, 0) >= 0 {
		return 0, errors.New("host is not valid")
	}
	w := &wish{host: strings.Clone(host), size: size} // host may be a part of something larger
	l.mu.Lock()
	l.wishes = append(l.wishes, w)
	l.mu.Unlock()
	l.granting.Lock()
	defer l.granting.Unlock()
	if !w.done {
		p.grantAll(l, sandboxID)
	}
	if w.err != nil {
		return 0, w.err
	}
	off, _ := l.offsetOf(host)
	return off, nil
}

// grantAll grants or refuses all that is wished for. Called with granting held.
//
// A write that failed may have been kept all the same. Were its offsets given
// to other names, two would share one after a restart; so that very write is
// repeated first, until it is known to be kept.
func (p *Pool) grantAll(l *leases, sandboxID string) {
	l.mu.Lock()
	wishes := l.wishes
	l.wishes = nil
	l.mu.Unlock()
	err := p.keep(l, sandboxID, l.unsure)
	if l.ended {
		err = ErrEnded
	}
	fresh := map[string]bool{}
	var hosts []string
	off := p.next(firstLease + uint32(len(l.hosts)))
	for _, w := range wishes {
		w.done, w.err = true, err
		if _, known := l.offsetOf(w.host); err != nil || known || fresh[w.host] {
			continue
		}
		if len(l.byHost)+len(hosts) >= p.o.MaxLeases || off >= w.size {
			w.err = ErrPoolExhausted
			continue
		}
		fresh[w.host], hosts, off = true, append(hosts, w.host), p.next(off+1)
	}
	if err := p.keep(l, sandboxID, hosts); err != nil {
		for _, w := range wishes {
			if fresh[w.host] {
				w.err = err
			}
		}
	}
}

// keep puts leases of the next offsets into the Store, then into l.
func (p *Pool) keep(l *leases, sandboxID string, hosts []string) error {
	if len(hosts) == 0 || l.ended {
		return nil
	}
	pairs := make(map[string][]byte, len(hosts))
	offsets := make([]uint32, len(hosts))
	off := firstLease + uint32(len(l.hosts))
	for i, host := range hosts {
		off = p.next(off)
		offsets[i], pairs[leaseKey(sandboxID, host)] = off, binary.BigEndian.AppendUint32(nil, off)
		off++
	}
	l.unsure = hosts
	if err := p.o.Store.PutAll(bucketLeases, pairs); err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	l.unsure = nil
	for i, host := range hosts {
		l.put(host, offsets[i])
	}
	return nil
}

// next returns the first offset from off on that may be leased.
func (p *Pool) next(off uint32) uint32 {
	for p.reserved[off] {
		off++
	}
	return off
}
