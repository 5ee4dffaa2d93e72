package upstream

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// selfRefresh is how long the addresses of the interfaces are believed.
const selfRefresh = time.Second

// interfaces tells the addresses of this process's interfaces. If they cannot
// be read it keeps to those it knew.
type interfaces struct {
	mu    sync.Mutex
	known []netip.Addr
	until time.Time
	fresh bool // there was no change before known was read
	watch addressWatch
}

// recent returns what they were within the last second.
func (i *interfaces) recent() []netip.Addr {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Now().After(i.until) {
		i.read()
	}
	return i.known
}

// now returns what they are: it reads them if the kernel tells a change, or
// does not tell changes.
func (i *interfaces) now() []netip.Addr {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.watch.changed() || !i.fresh {
		i.read()
	}
	return i.known
}

// read is called with mu held, after what the kernel has told was taken note
// of: what it tells from then on is another change.
func (i *interfaces) read() {
	i.fresh = false
	found, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	now := make([]netip.Addr, 0, len(found))
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				now = append(now, addr.Unmap())
			}
		}
	}
	i.known, i.until, i.fresh = now, time.Now().Add(selfRefresh), true
}

func (i *interfaces) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watch.close()
}
