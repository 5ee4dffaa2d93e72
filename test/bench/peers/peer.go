//go:build linux

package peers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sallyport/test/bench/load"
	"sallyport/test/bench/measure"
	"sallyport/test/bench/origin"
)

// Header is what every request carries: for sallyport the name of a secret.
const Header = "Authorization: Bearer $BENCH_KEY\r\n"

// secret is what it stands for.
const secret = "sk-bench-0123456789abcdefghijklmnopqrstuvwxyz"

// Peer is one way to the origin. In argv, env and files, @D is the peer's
// own folder, @W the world's, @G the address that it listens on.
type Peer struct {
	Name   string
	Target load.Target
	Client *Client
	Roots  string // PEM file of who signs what the client sees
	Swaps  bool   // puts the secret in
	NoHTTP bool   // a name server
	Host   string // asked instead of the ordinary one

	argv, env []string
	files     map[string]string
	prepare   []string
	alone     bool  // only the process itself counts, not those below it
	service   *Peer // whose process it is
	started   func() error
	again     func() error // instead of launch, at a restart
	process   *Process
	dir       string
	world     *World
}

func (p *Peer) fill(s string) string {
	return strings.NewReplacer("@D", p.dir, "@W", p.world.Dir, "@G", ClientGateway(0), "@B", p.world.Self).Replace(s)
}

func (p *Peer) fillAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = p.fill(s)
	}
	return out
}

// Start starts the peer's program, if it has one, and waits until it serves.
func (p *Peer) Start(w *World) error {
	p.world, p.dir = w, filepath.Join(w.Dir, p.Name)
	if p.Client == nil {
		p.Client = w.Box
	}
	p.Target.Address, p.Target.DNS, p.Roots = p.fill(p.Target.Address), p.fill(p.Target.DNS), p.fill(p.Roots)
	if p.service != nil {
		return nil
	}
	if err := p.launch(); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

func (p *Peer) launch() error {
	if len(p.argv) == 0 {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(p.fill(text)), 0o644); err != nil {
			return err
		}
	}
	if len(p.prepare) > 0 {
		argv := p.fillAll(p.prepare)
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	argv := p.fillAll(p.argv)
	process, err := p.world.start(p.Name, p.fillAll(p.env), argv)
	if err != nil {
		return err
	}
	p.process = process
	if p.started != nil {
		return p.started()
	}
	return nil
}

// start starts a program that is not spoken to.
func (w *World) start(name string, env, argv []string) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(w.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{Cmd: exec.Command(argv[0], argv[1:]...)}
	p.Env, p.Stdout, p.Stderr = append(os.Environ(), env...), log, log
	return p, p.Start()
}

// Stop ends the program.
func (p *Peer) Stop() {
	if p.process != nil {
		p.process.Stop()
		p.process = nil
	}
}

// Restart is a new process of the same peer.
func (p *Peer) Restart() error {
	if p.service != nil {
		return p.service.Restart()
	}
	p.Stop()
	if p.again != nil {
		return p.again()
	}
	return p.launch()
}

// PIDs are the processes whose work is the peer's.
func (p *Peer) PIDs() []int {
	switch {
	case p.service != nil:
		return p.service.PIDs()
	case p.process == nil:
		return nil
	case p.alone:
		return []int{p.process.PID()}
	}
	return measure.Tree(p.process.PID())
}

// serveTime bounds how long a peer may take to answer for the first time.
const serveTime = 60 * time.Second

// Check waits for a verified answer, and returns who signed the certificate.
// What swaps must have put the secret in, and what does not must not.
func (p *Peer) Check() (issuer string, err error) {
	if p.NoHTTP {
		return p.checkName()
	}
	for end := time.Now().Add(serveTime); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		var r load.Result
		j := load.Job{Kind: load.Fetch, Target: p.Target, Host: p.Asked(), Path: origin.Swapped(), Header: Header, Roots: p.Roots}
		if r, err = p.Client.Do(j, func() {}, func() {}); err != nil {
			return "", fmt.Errorf("%w: %s", err, p.world.said(p.Name)) // the client is gone
		}
		if r.Errors > 0 {
			err = errors.New(r.Last)
			continue
		}
		if got, want := strings.TrimSpace(r.Text), p.expected(); got != origin.Digest(want) {
			return "", fmt.Errorf("%s: the origin did not receive %q", p.Name, want)
		}
		return r.Issuer, nil
	}
	return "", fmt.Errorf("%s: no verified answer: %w", p.Name, err)
}

func (p *Peer) expected() string {
	if p.Swaps {
		return "Bearer " + secret
	}
	return "Bearer $BENCH_KEY"
}

func (p *Peer) checkName() (string, error) {
	var last string
	for end := time.Now().Add(serveTime); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		j := load.Job{Kind: load.Questions, Target: p.Target, Names: []string{RuleName(0), RuleName(names - 1)}, Conns: 1}
		r, err := p.Client.Do(j, func() {}, func() {})
		if err != nil {
			return "", err
		}
		if r.Errors == 0 {
			return "answers", nil
		}
		last = r.Last
	}
	return "", fmt.Errorf("%s: no answer: %s", p.Name, last)
}

// Asked is the host that the peer is asked for.
func (p *Peer) Asked() string {
	if p.Host != "" {
		return p.Host
	}
	return origin.Host
}
