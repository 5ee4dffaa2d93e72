package main

import (
	"fmt"
	"net/netip"
	"testing"

	"sallyport/policy"
)

// TestSourcesOn: who is behind an interface cannot pass for a sandbox that is
// known by addresses of another network alone, or by another Ethernet address.
func TestSourcesOn(t *testing.T) {
	prefix := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	set, problems := policy.Compile(policy.Document{Sandboxes: []policy.Sandbox{
		{Name: "bridge", Match: policy.Match{CIDRs: prefix("10.77.4.0/24")}},
		{Name: "vm1", Match: policy.Match{CIDRs: prefix("10.77.5.2/32"), Interfaces: []string{"vm1"}, MACs: []string{"02:5a:00:00:05:02"}}},
		{Name: "vm2", Match: policy.Match{CIDRs: prefix("10.77.5.3/32"), MACs: []string{"02:5a:00:00:05:03"}}}}}, 1)
	if set == nil {
		t.Fatal(problems)
	}
	b := captureBlock{Address: []string{"10.77.5.1/24", "192.0.2.1/32"}}
	if got := fmt.Sprint(sourcesOn(set, "vm1", b.onLink("vm1"))); got != "[10.77.5.2/32 10.77.5.3/32]" {
		t.Errorf("with addresses: %v", got)
	}
	if got := sourcesOn(set, "vm1", nil); len(got) != 3 {
		t.Errorf("of an interface without networks nothing is known to be elsewhere: %v", got)
	}
	macs := macsOn(set, "vm1")
	for p, want := range map[string]string{"10.77.5.2/32": "[02:5a:00:00:05:02]", "10.77.5.3/32": "[02:5a:00:00:05:03]", "10.77.4.0/24": "[]"} {
		if got := fmt.Sprint(macs[netip.MustParsePrefix(p)]); got != want {
			t.Errorf("%s goes with %s, want %s", p, got, want)
		}
	}
	if name, ok := claimant(set)("vm1", netip.MustParseAddr("10.77.5.3"), ""); name != "vm2" || !ok {
		t.Errorf("10.77.5.3 is %q", name)
	}
}
