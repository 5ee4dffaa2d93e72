package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/gateway/dns"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// daemonFile is sallyport.hcl. Every block and attribute may be left out.
type daemonFile struct {
	State    string          `hcl:"state,optional"`
	Policy   []string        `hcl:"policy,optional"`
	Git      *gitPolicyBlock `hcl:"policy_git,block"`     // instead of policy
	Push     bool            `hcl:"policy_push,optional"` // the policy is what sallyport policy apply brings, instead of policy
	Confine  bool            `hcl:"confine,optional"`     // to the files that it needs
	Log      *logBlock       `hcl:"log,block"`
	Captures []captureBlock  `hcl:"capture,block"`
	DNS      *dnsBlock       `hcl:"dns,block"`
	Upstream *upstreamBlock  `hcl:"upstream,block"`
	Audit    *auditBlock     `hcl:"audit,block"`
	Ships    []shipBlock     `hcl:"ship,block"`
	Limits   *limitsBlock    `hcl:"limits,block"`
	Control  *controlBlock   `hcl:"control,block"`
	Metrics  *metricsBlock   `hcl:"metrics,block"`

	source *hcl.File // what it was read from; nil without a file
}

type logBlock struct {
	Level string `hcl:"level,optional"`
	JSON  bool   `hcl:"json,optional"`
}

type dnsBlock struct {
	Denied string `hcl:"denied,optional"`
	Pool   string `hcl:"pool,optional"`
}

type upstreamBlock struct {
	Resolvers []string            `hcl:"resolvers,optional"`
	CAFile    string              `hcl:"ca_file,optional"`
	Hosts     map[string][]string `hcl:"hosts,optional"`
	NAT64     []string            `hcl:"nat64,optional"`
}

type auditBlock struct {
	Sync     string `hcl:"sync,optional"`
	Interval string `hcl:"interval,optional"`
	Retain   string `hcl:"retain,optional"`
	MaxSize  int64  `hcl:"max_bytes,optional"`
	Segment  int64  `hcl:"segment_bytes,optional"`
}

type limitsBlock struct {
	Connections        int `hcl:"connections,optional"`
	SandboxConnections int `hcl:"sandbox_connections,optional"`
}

type metricsBlock struct {
	Listen string `hcl:"listen"` // address:port, on the gateway's side
}

type controlBlock struct {
	Users  []string `hcl:"users,optional"`  // who may use the control socket, besides root and the daemon's own user
	Group  string   `hcl:"group,optional"`  // whose members may use it
	Socket string   `hcl:"socket,optional"` // its path; default control.sock in the runtime folder
}

// readDaemonFile reads path strictly: what is not known is an error.
func readDaemonFile(path string) (*daemonFile, *hclparse.Parser, hcl.Diagnostics) {
	parser := hclparse.NewParser()
	text, err := os.ReadFile(path)
	if err != nil { // the parser would not say why
		return nil, parser, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "The daemon file was not read", Detail: err.Error(), Extra: err}}
	}
	f, diags := parser.ParseHCL(text, path)
	if diags.HasErrors() {
		return nil, parser, diags
	}
	d := daemonFile{source: f}
	diags = append(diags, gohcl.DecodeBody(f.Body, nil, &d)...)
	return &d, parser, diags
}

// policyBlock returns the first block of f that a policy has; nil if f has
// anything of a daemon file.
func policyBlock(f *hcl.File) *hclsyntax.Block {
	if f == nil {
		return nil
	}
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	schema, _ := gohcl.ImpliedBodySchema(daemonFile{})
	if some, _, _ := body.PartialContent(schema); len(some.Attributes)+len(some.Blocks) > 0 {
		return nil
	}
	i := slices.IndexFunc(body.Blocks, func(b *hclsyntax.Block) bool {
		return slices.Contains([]string{"sandbox", "secret", "group", "org", "variable", "locals", "dynamic", "alert", "notify", "mute", "test"}, b.Type)
	})
	if i < 0 {
		return nil
	}
	return body.Blocks[i]
}

// settings turns the file into what a stack is built from.
func (d *daemonFile) settings(p paths) (settings, error) {
	s := settings{state: p.state, policy: d.Policy}
	if d.State != "" {
		s.state = d.State
	}
	s.own = s.state
	level, json := "info", false
	if d.Log != nil {
		if d.Log.Level != "" {
			level = d.Log.Level
		}
		json = d.Log.JSON
	}
	if hclog.LevelFromString(level) == hclog.NoLevel {
		return s, d.at(fmt.Errorf("%q is none of trace, debug, info, warn, error", level), "log", "level")
	}
	s.log = hclog.New(&hclog.LoggerOptions{Name: "sallyport", Level: hclog.LevelFromString(level), JSONFormat: json, Output: os.Stderr, IndependentLevels: true})
	for _, step := range []func(*settings) error{d.dns, d.upstream, d.audit, d.ships, d.limits, d.metrics} {
		if err := step(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (d *daemonFile) dns(s *settings) (err error) {
	if d.DNS == nil {
		return nil
	}
	if s.denied, err = deniedMode(d.DNS.Denied); err != nil {
		return d.at(fmt.Errorf("%q is none of explain, refused, nxdomain", d.DNS.Denied), "dns", "denied")
	}
	if d.DNS.Pool != "" {
		s.pool, err = netip.ParsePrefix(d.DNS.Pool)
		if err != nil || !dns.GoodPool4(s.pool) {
			return d.at(fmt.Errorf("%q is not an IPv4 prefix of 8 to 29 bits, such as 198.18.0.0/15", d.DNS.Pool), "dns", "pool")
		}
	}
	return nil
}

func (d *daemonFile) upstream(s *settings) error {
	if d.Upstream == nil {
		return nil
	}
	s.upstream = upstreamSettings{resolvers: d.Upstream.Resolvers, caFile: d.Upstream.CAFile, hosts: map[string][]netip.Addr{}}
	for name, list := range d.Upstream.Hosts {
		host, err := policy.CanonicalHost(name)
		if err != nil {
			return d.at(err, "upstream", "hosts")
		}
		if len(list) == 0 {
			return d.at(fmt.Errorf("%s has no address", name), "upstream", "hosts")
		}
		for _, text := range list {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return d.at(fmt.Errorf("%s: %q is not an address such as 10.0.12.7", name, text), "upstream", "hosts")
			}
			s.upstream.hosts[host] = append(s.upstream.hosts[host], a)
		}
	}
	for _, text := range d.Upstream.NAT64 {
		p, err := netip.ParsePrefix(text)
		if err != nil || !upstream.TranslationPrefix(p) {
			return d.at(fmt.Errorf("%q is not an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, such as 64:ff9b::/96", text), "upstream", "nat64")
		}
		s.upstream.nat64 = append(s.upstream.nat64, p)
	}
	for _, text := range d.Upstream.Resolvers {
		if a, err := netip.ParseAddrPort(text); err != nil || a.Port() == 0 {
			return d.at(fmt.Errorf("resolver %q is not an address with a port such as 192.0.2.53:53", text), "upstream", "resolvers")
		}
	}
	return d.upstreamCA()
}

// upstreamCA looks into the file that is added to the system's roots.
func (d *daemonFile) upstreamCA() error {
	if d.Upstream.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(d.Upstream.CAFile)
	if err == nil {
		_, err = upstream.Roots(pem)
	}
	if err != nil {
		return d.at(err, "upstream", "ca_file")
	}
	return nil
}

func (d *daemonFile) audit(s *settings) (err error) {
	if d.Audit == nil {
		return nil
	}
	s.audit.retainBytes, s.audit.segment = d.Audit.MaxSize, d.Audit.Segment
	if s.audit.sync, err = audit.ParseSync(d.Audit.Sync); err != nil {
		return d.at(fmt.Errorf("%q is none of always, interval, never", d.Audit.Sync), "audit", "sync")
	}
	if s.audit.interval, err = d.span(d.Audit.Interval, "audit", "interval"); err != nil {
		return err
	}
	if s.audit.retain, err = d.span(d.Audit.Retain, "audit", "retain"); err != nil {
		return err
	}
	if err := d.atLeast0(d.Audit.MaxSize, "audit", "max_bytes"); err != nil {
		return err
	}
	return d.atLeast0(d.Audit.Segment, "audit", "segment_bytes")
}

func (d *daemonFile) limits(s *settings) error {
	if d.Limits == nil {
		return nil
	}
	s.limits = gateway.Limits{Connections: d.Limits.Connections, SandboxConnections: d.Limits.SandboxConnections}
	if err := d.atLeast0(int64(d.Limits.Connections), "limits", "connections"); err != nil {
		return err
	}
	return d.atLeast0(int64(d.Limits.SandboxConnections), "limits", "sandbox_connections")
}

// metrics looks at where they are to be served; they are once all is open.
func (d *daemonFile) metrics(*settings) error {
	if d.Metrics == nil {
		return nil
	}
	if _, port, err := net.SplitHostPort(d.Metrics.Listen); err != nil || port == "" {
		return d.at(fmt.Errorf("%q is not of the form 127.0.0.1:9090", d.Metrics.Listen), "metrics", "listen")
	}
	return nil
}

// maxDays is as many days as a duration holds.
const maxDays = 100000

// duration reads a duration that may be in days, as 30d. "" is 0.
func duration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	var days int
	if n, err := fmt.Sscanf(s, "%dd", &days); n == 1 && err == nil && s == fmt.Sprintf("%dd", days) {
		if days > maxDays || days < -maxDays {
			return 0, fmt.Errorf("%s: more than %d days", s, maxDays)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	return time.ParseDuration(s)
}
