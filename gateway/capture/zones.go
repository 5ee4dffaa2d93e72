//go:build linux

package capture

import (
	"net"
	"strconv"
	"time"
)

// zones names the zones of link-local peers as package net does, so that the
// datagrams of a sandbox and its connections are recorded with the same address:
// by the interface that has the number where the gateway runs, and by the number
// if none has it. It is used by one at a time.
type zones struct {
	names map[uint32]string
	since time.Time
}

// zonesKept is for how long a name is taken for that of its interface.
const zonesKept = time.Minute

func (z *zones) name(scope uint32) string {
	if now := time.Now(); z.names == nil || now.Sub(z.since) > zonesKept {
		z.names, z.since = map[uint32]string{}, now
	}
	name, ok := z.names[scope]
	if !ok {
		name = strconv.FormatUint(uint64(scope), 10)
		if i, err := net.InterfaceByIndex(int(scope)); err == nil {
			name = i.Name
		}
		z.names[scope] = name
	}
	return name
}
