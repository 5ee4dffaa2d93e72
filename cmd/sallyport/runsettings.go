package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/policy"
	"sallyport/policy/policyfile"
)

func stateFlag(state string) string {
	if state == "" {
		return ""
	}
	return " --state " + state
}

// settings come from the flags.
func (f *runFlags) settings() (settings, error) {
	p, err := userPaths()
	if err != nil && f.state == "" {
		return settings{}, err
	}
	state := p.state
	if f.state != "" {
		if state, err = filepath.Abs(f.state); err != nil {
			return settings{}, err
		}
	}
	s := settings{state: state, own: filepath.Join(state, "runs", audit.NewID()), policy: f.policy, vars: variables(f.vars),
		log: hclog.New(&hclog.LoggerOptions{Name: "sallyport", Level: hclog.LevelFromString(f.logLevel), Output: os.Stderr, IndependentLevels: true})}
	if len(s.policy) == 0 {
		if s.policy, err = configuredPolicy(p); err != nil {
			return settings{}, err
		}
	}
	if s.stdin, err = policyInput(s.policy, os.Stdin); err != nil {
		return settings{}, err
	}
	if s.denied, err = deniedMode(f.denied); err != nil {
		return settings{}, err
	}
	s.upstream = upstreamSettings{resolvers: f.resolvers, caFile: f.caFile}
	s.upstream.hosts, err = parseHosts(f.hosts)
	return s, err
}

func deniedMode(s string) (gateway.DeniedMode, error) {
	switch s {
	case "", "explain":
		return gateway.Explain, nil
	case "refused":
		return gateway.Refused, nil
	case "nxdomain":
		return gateway.NXDomain, nil
	}
	return 0, fmt.Errorf("denied: %q is none of explain, refused, nxdomain", s)
}

func parseHosts(list []string) (map[string][]netip.Addr, error) {
	hosts := map[string][]netip.Addr{}
	for _, h := range list {
		name, text, ok := strings.Cut(h, "=")
		addr, err := netip.ParseAddr(text)
		if !ok || err != nil {
			return nil, &exit{code: exitUsage, err: fmt.Errorf("--host %s: not of the form NAME=ADDRESS", h)}
		}
		canonical, err := policy.CanonicalHost(name)
		if err != nil {
			return nil, &exit{code: exitUsage, err: fmt.Errorf("--host %s: %w", h, err)}
		}
		hosts[canonical] = append(hosts[canonical], addr)
	}
	return hosts, nil
}

// reportOnly puts every sandbox into report mode.
func reportOnly(d *policy.Document) {
	for i := range d.Sandboxes {
		d.Sandboxes[i].Mode = policy.Report
	}
}

// diagnosed prints diagnostics and makes an error of those that are one.
func diagnosed(diags *policyfile.Diagnostics) error {
	if diags.Len() == 0 {
		return nil
	}
	_ = diags.WriteText(os.Stderr, useColor(os.Stderr)) // there is nowhere else to say it
	if diags.HasErrors() {
		return &exit{code: exitFailed, err: errors.New("the policy has errors; nothing was started")}
	}
	return nil
}
