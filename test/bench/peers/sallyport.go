//go:build linux

package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"sallyport/test/bench/load"
	"sallyport/test/bench/measure"
	"sallyport/test/bench/origin"
)

// anyResolver is what a sandbox asks: an address that nobody has.
const anyResolver = "192.0.2.53:53"

// Gateway is a sallyport daemon with a policy for the benchmark.
type Gateway struct {
	Name    string
	Rules   int  // more rules, of which none is asked for
	Secrets int  // of which one is used; 0: none, and nothing is swapped
	Wire    bool // has an interface capture too
	Peers   []*Peer
	w       *World
	service *Peer
	wire    *Client
	http    *http.Client
}

// NewGateway prepares a daemon and the clients in its sandboxes.
func (w *World) NewGateway(g Gateway) (*Gateway, error) {
	g.w = w
	g.service = &Peer{Name: g.Name, argv: []string{w.Binary, "serve", "--config", "@D/sallyport.hcl"}, alone: true,
		prepare: []string{"sh", "-c", "rm -rf @D/state && mkdir -m 700 -p @D/state @D/run"}, world: w, dir: filepath.Join(w.Dir, g.Name)}
	inside, err := w.NewClient(false)
	if err != nil {
		return nil, err
	}
	target := load.Target{Mode: load.ByName, DNS: anyResolver}
	roots := filepath.Join(g.service.dir, "roots.pem")
	g.Peers = []*Peer{{Name: g.Name + "-netns", Target: target, Client: inside, Roots: roots, Swaps: g.Secrets > 0, service: g.service}}
	if g.Wire {
		if g.wire, err = w.NewClient(true); err != nil {
			return nil, err
		}
		g.Peers = append(g.Peers, &Peer{Name: g.Name + "-interface", Target: target, Client: g.wire, Roots: roots, Swaps: g.Secrets > 0, service: g.service})
	}
	g.service.files = map[string]string{"sallyport.hcl": g.daemonFile(), "policy.hcl": g.policy()}
	g.service.started = g.ready
	g.http = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(g.service.dir, "control.sock"))
		}}}
	return &g, nil
}

func (g *Gateway) daemonFile() string {
	s := fmt.Sprintf("state = \"@D/state\"\npolicy = [\"@D/policy.hcl\"]\nlog { level = \"error\" }\ncontrol { socket = \"@D/control.sock\" }\n"+
		"upstream {\n  resolvers = [\"%s:53\"]\n  ca_file = \"@W/origin.crt\"\n}\nlimits {\n  connections = 32768\n  sandbox_connections = 16384\n}\n", origin.Resolver)
	if g.wire != nil {
		s += fmt.Sprintf("capture \"wire\" { interface = [%q] }\n", LinkName(g.wire.Number))
	}
	return s
}

// policy allows the origin's names, and injects a secret for the host that is
// asked most.
func (g *Gateway) policy() string {
	var b strings.Builder
	allowed := fmt.Sprintf("addresses = [%q]", origin.Network)
	inject := ""
	if g.Secrets > 0 {
		inject = "\n    inject = [\"BENCH_KEY\"]"
		fmt.Fprintf(&b, "secret \"BENCH_KEY\" {\n  hosts = [\"*.%s\"]\n  source \"env\" { name = \"BENCH_KEY\" }\n}\n", origin.Zone)
	}
	fmt.Fprintf(&b, "group \"bench\" {\n  allow \"*.%s\" {\n    %s%s\n  }\n  passthrough %q {\n    reason = \"measured unopened\"\n    %s\n  }\n", origin.Zone, allowed, inject, origin.RawHost, allowed)
	for i := range g.Rules {
		fmt.Fprintf(&b, "  allow %q { %s }\n", RuleName(i), allowed)
	}
	var extra []string
	for i := 1; i < g.Secrets; i++ {
		name := fmt.Sprintf("KEY_%d", i)
		extra = append(extra, name)
		fmt.Fprintf(&b, "  allow \"k%d.%s\" {\n    %s\n    inject = [%q]\n  }\n", i, origin.Zone, allowed, name)
	}
	b.WriteString("}\n")
	for i, name := range extra {
		fmt.Fprintf(&b, "secret %q {\n  hosts = [\"k%d.%s\"]\n  source \"env\" { name = %q }\n}\n", name, i+1, origin.Zone, name)
		g.service.env = append(g.service.env, fmt.Sprintf("%s=%s-%d", name, secret, i))
	}
	g.service.env = append(g.service.env, "BENCH_KEY="+secret)
	b.WriteString("sandbox \"bench\" {\n  use = [\"bench\"]\n  limits { connections = 16384 }\n}\n")
	if g.wire != nil {
		fmt.Fprintf(&b, "sandbox \"wire\" {\n  use = [\"bench\"]\n  match {\n    interfaces = [%q]\n    cidrs = [\"10.66.%d.2/32\"]\n  }\n}\n", LinkName(g.wire.Number), g.wire.Number)
	}
	return b.String()
}

// Start starts the daemon.
func (g *Gateway) Start() error {
	if err := g.service.Start(g.w); err != nil {
		return err
	}
	for _, p := range g.Peers {
		if err := p.Start(g.w); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the daemon.
func (g *Gateway) Stop() { g.service.Stop() }

// PID is the daemon's process.
func (g *Gateway) PID() int { return g.service.process.PID() }

// ready waits for the daemon and attaches the namespace of its first client.
func (g *Gateway) ready() error {
	var err error
	for end := time.Now().Add(serveTime); ; time.Sleep(50 * time.Millisecond) {
		if measure.Gone(g.PID()) {
			return fmt.Errorf("it has ended: %s", g.w.said(g.Name))
		}
		if _, err = g.Call(http.MethodGet, "/readyz", nil); err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("not ready: %w: %s", err, g.w.said(g.Name))
		}
	}
	if err := g.Attach(map[string]any{"sandbox": "bench", "pid": g.Peers[0].Client.PID()}); err != nil {
		return err
	}
	return g.service.trust(filepath.Join(g.service.dir, "state", "ca.pem"))
}

// Attach makes a namespace a sandbox.
func (g *Gateway) Attach(what map[string]any) error {
	_, err := g.Call(http.MethodPost, "/v1/sandboxes", what)
	return err
}

// Call makes one call over the control socket.
func (g *Gateway) Call(method, path string, in any) ([]byte, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, "http://gateway"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := g.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = errors.New(resp.Status + ": " + string(b))
	}
	return b, err
}
