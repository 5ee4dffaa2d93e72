//go:build linux

package peers

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"sallyport/test/bench/load"
	"sallyport/test/bench/origin"
)

// Run is sallyport around one command, which is the load client: the gateway
// is the parent.
func (w *World) Run() (*Peer, error) {
	g := Gateway{Name: "sallyport-run", Secrets: 1, service: &Peer{}}
	dir := filepath.Join(w.Dir, g.Name)
	policy, roots := filepath.Join(dir, "policy.hcl"), filepath.Join(dir, "roots.pem")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(policy, []byte(g.policy()), 0o644)); err != nil {
		return nil, err
	}
	p := &Peer{Name: g.Name, Target: load.Target{Mode: load.ByName, DNS: anyResolver}, Roots: roots, Swaps: true, alone: true}
	p.again = func() error {
		state, err := os.MkdirTemp(dir, "state")
		if err != nil {
			return err
		}
		if p.process, err = w.spawn(g.Name, false, g.service.env, w.Binary, "run", "--policy", policy, "--sandbox", "bench", "--state", state,
			"--resolver", origin.Resolver+":53", "--ca-file", filepath.Join(w.Dir, "origin.crt"), "--share", w.Dir, "--", w.Self, "run"); err != nil {
			return err
		}
		p.Client = &Client{Process: p.process}
		return p.trust(filepath.Join(state, "ca.pem"))
	}
	if err := p.Start(w); err != nil {
		return nil, err
	}
	return p, p.again()
}

// trust waits for an authority's certificate and puts it beside the origin's.
func (p *Peer) trust(file string) error {
	var roots []byte
	for _, path := range []string{file, filepath.Join(p.world.Dir, "origin.crt")} {
		pem, err := os.ReadFile(path)
		for end := time.Now().Add(serveTime); errors.Is(err, os.ErrNotExist) && time.Now().Before(end); pem, err = os.ReadFile(path) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			return err
		}
		roots = append(roots, pem...)
	}
	return os.WriteFile(filepath.Join(p.dir, "roots.pem"), roots, 0o644)
}
