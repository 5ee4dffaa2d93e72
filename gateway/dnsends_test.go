package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/gateway/identity"
)

// TestDNSThatBreaksOff: a connection for DNS that ends within a message, or
// before one, has one record, as any other connection that breaks off.
func TestDNSThatBreaksOff(t *testing.T) {
	l := newLab(t)
	l.load()
	ln := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	in := &Inbound{Name: "dns", DNSListeners: []net.Listener{ln}, Identify: func(netip.Addr) (*identity.Sandbox, bool) { return l.sandbox, true }}
	go func() { served <- l.g.Serve(ctx, in) }()
	want := map[int]string{} // by the port of the client
	for _, tt := range []struct{ send, record string }{
		{"", "allow gateway_name"},
		{"\x00", "deny protocol_error"},
		{"\x00\x1d", "deny protocol_error"},
		{"\x00\x1d\xbe\xef", "deny protocol_error"},
	} {
		c, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		want[c.LocalAddr().(*net.TCPAddr).Port] = tt.record
		say(t, c, tt.send)
		must(t, c.(*net.TCPConn).CloseWrite())
		ended(t, c, 5*time.Second)
		must(t, c.Close())
	}
	cancel()
	must(t, <-served)
	got := map[int][]string{}
	for _, e := range l.events(nil) {
		if e.Kind == audit.KindDNS && e.Phase == audit.PhaseDecision && e.DNS.Transport == "tcp" {
			got[int(e.Src.Port)] = append(got[int(e.Src.Port)], e.Verdict+" "+e.Reason)
		}
	}
	for port, record := range want {
		if !slices.Equal(got[port], []string{record}) {
			t.Errorf("recorded %q, want %q", got[port], record)
		}
	}
}
