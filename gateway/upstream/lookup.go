package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// serverTimeout is how long a server is given when there is another to ask.
const serverTimeout = 3 * time.Second

// newLookup returns a LookupFunc that asks the given servers in order, or the
// system's when there are none, with Go's own resolver: A and AAAA at once,
// TCP when an answer does not fit, aliases followed by the server. Only where
// an alias ends matters: its names are not compared with any rule, as they
// never reach the sandbox and the certificate must be for the name asked.
func newLookup(servers []string) (LookupFunc, error) {
	if len(servers) == 0 {
		return ask(""), nil
	}
	lookups := make([]LookupFunc, len(servers))
	for i, s := range servers {
		addr, err := netip.ParseAddrPort(s)
		if err != nil || addr.Port() == 0 {
			return nil, fmt.Errorf("upstream resolver %q: not an address with a port such as 192.0.2.53:53", s)
		}
		lookups[i] = ask(addr.String())
	}
	return inTurn(lookups), nil
}

// ask returns a LookupFunc that asks one server, or those of the system for
// "". The name is made absolute, so that no search list of the host is tried.
func ask(server string) LookupFunc {
	return func(ctx context.Context, host string) ([]netip.Addr, error) {
		q := &questions{server: server}
		return q.lookup(ctx, host+".")
	}
}

// inTurn asks until one answers. That a name does not exist is an answer.
func inTurn(lookups []LookupFunc) LookupFunc {
	return func(ctx context.Context, host string) (addrs []netip.Addr, err error) {
		for i, lookup := range lookups {
			one, cancel := ctx, context.CancelFunc(func() {})
			if i < len(lookups)-1 {
				one, cancel = context.WithTimeout(ctx, serverTimeout)
			}
			addrs, err = lookup(one, host)
			cancel()
			if err == nil || notFound(err) || ctx.Err() != nil {
				break
			}
		}
		return addrs, err
	}
}

func notFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}
