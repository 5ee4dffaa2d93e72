//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"sallyport/audit"
	"sallyport/test/bench/load"
	"sallyport/test/bench/peers"
	"sallyport/test/bench/report"
)

// growth is something of which there may be a thousand times as many.
type growth struct {
	id      string
	of      string
	what    string // is measured
	metric  report.Metric
	sizes   []int
	measure func(b *bench, g growth) error
}

// growths are what `make bench-growth` goes through.
func growths() []growth {
	const request = "CPU of a request of 1 KiB, 100 kept connections"
	return []growth{
		{"requests", "requests answered before", request, report.CPU, decades(1000), afterRequests},
		{"held", "requests answered before", "memory of the gateway", report.Memory, decades(1000), nil},
		{"rules", "rules", request, report.CPU, decades(100), withRules},
		{"secrets", "secrets", request, report.CPU, decades(1), withSecrets},
		{"sandboxes", "sandboxes, of which each asks", request, report.CPU, decades(1), amongSandboxes},
		{"names", "names that a sandbox has asked for", "CPU of a DNS question", report.CPU, decades(10), afterNames},
		{"audit", "records of the audit log", "`tail` by sandbox and reason", report.Wait, decades(10_000), tailOf},
	}
}

// decades are n and three powers of ten more.
func decades(n int) []int { return []int{n, 10 * n, 100 * n, 1000 * n} }

// grow measures all of them and writes a table.
func (b *bench) grow(readme string) error {
	var lines []report.Curve
	for _, g := range growths() {
		if g.measure != nil && b.chosen(g.id) {
			fmt.Fprintf(b.out, "# %s: %v\n", g.id, g.sizes)
			if err := g.measure(b, g); err != nil {
				return fmt.Errorf("%s: %w", g.id, err)
			}
		}
		lines = append(lines, report.Curve{Workload: g.id, Of: g.of, What: g.what, Metric: g.metric, Sizes: g.sizes})
	}
	var text bytes.Buffer
	b.samples.Growth(&text, lines)
	fmt.Fprintf(b.out, "\n%s", &text)
	if readme == "" {
		return nil
	}
	document, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	document, err = report.Insert(document, "make bench-growth", text.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", readme, err)
	}
	return os.WriteFile(readme, document, 0o644)
}

// gateway starts a daemon of its own for the measurement of id.
func (b *bench) gateway(id string, size int, spec peers.Gateway) (*peers.Gateway, error) {
	spec.Name = fmt.Sprintf("growth-%s-%d", id, size)
	g, err := b.world.NewGateway(spec)
	if err != nil {
		return nil, err
	}
	if err := g.Start(); err != nil {
		return nil, err
	}
	_, err = g.Peers[0].Check()
	return g, err
}

// sized keeps what was measured at one size.
func (b *bench) sized(id string, p *peers.Peer, size, round int, j load.Job) error {
	s, err := b.measure(id, p, j, round)
	if err != nil {
		return err
	}
	if s.Error != "" {
		return fmt.Errorf("%d: %s", size, s.Error)
	}
	s.Peer = strconv.Itoa(size)
	b.samples = append(b.samples, s)
	return nil
}

// small is a job of W1.
func (b *bench) small() load.Job {
	return load.Job{Kind: load.KeepAlive, Path: "/small", Conns: 100, Time: b.length}
}

func afterRequests(b *bench, g growth) error {
	gw, err := b.gateway(g.id, 0, peers.Gateway{Secrets: 1})
	if err != nil {
		return err
	}
	defer gw.Stop()
	p, done := gw.Peers[0], 0
	for _, size := range g.sizes {
		for done < size {
			j := b.small()
			j.Header, j.Host, j.Target = peers.Header, p.Asked(), p.Target
			r, err := p.Client.Do(j, func() {}, func() {})
			if err != nil || r.Errors > 0 {
				return errors.Join(err, errors.New(r.Last))
			}
			done += r.Ops
		}
		for round := range b.options.rounds {
			if err := b.sized(g.id, p, size, round, b.small()); err != nil {
				return err
			}
		}
		held := b.samples[len(b.samples)-1]
		held.Workload = "held"
		b.samples = append(b.samples, held)
	}
	return nil
}

func withRules(b *bench, g growth) error {
	return b.beside(g, func(n int) peers.Gateway { return peers.Gateway{Secrets: 1, Rules: n} })
}

func withSecrets(b *bench, g growth) error {
	return b.beside(g, func(n int) peers.Gateway { return peers.Gateway{Secrets: n} })
}

// beside measures daemons that stand side by side, in turn.
func (b *bench) beside(g growth, spec func(n int) peers.Gateway) error {
	var list []*peers.Gateway
	for _, size := range g.sizes {
		gw, err := b.gateway(g.id, size, spec(size))
		if err != nil {
			return err
		}
		defer gw.Stop()
		list = append(list, gw)
	}
	for round := range b.options.rounds {
		for i, gw := range list {
			if err := b.sized(g.id, gw.Peers[0], g.sizes[i], round, b.small()); err != nil {
				return err
			}
		}
	}
	return nil
}

func amongSandboxes(b *bench, g growth) error {
	gw, err := b.gateway(g.id, 0, peers.Gateway{Secrets: 1})
	if err != nil {
		return err
	}
	defer gw.Stop()
	list, err := b.world.Spaces(g.sizes[len(g.sizes)-1])
	if err != nil {
		return err
	}
	attached := 0
	for _, size := range g.sizes {
		for ; attached < size; attached++ {
			if err := gw.Attach(map[string]any{"sandbox": "bench", "netns": list[attached]}); err != nil {
				return err
			}
		}
		j := b.small()
		j.Spaces = list[:size]
		for round := range b.options.rounds {
			if err := b.sized(g.id, gw.Peers[0], size, round, j); err != nil {
				return err
			}
		}
	}
	return nil
}

func afterNames(b *bench, g growth) error {
	gw, err := b.gateway(g.id, 0, peers.Gateway{Secrets: 1, Rules: g.sizes[len(g.sizes)-1]})
	if err != nil {
		return err
	}
	defer gw.Stop()
	p, asked := gw.Peers[0], 0
	for _, size := range g.sizes {
		once := load.Job{Kind: load.Once, Conns: 8, Names: someNames(asked, 1, size-asked), Target: p.Target}
		r, err := p.Client.Do(once, func() {}, func() {})
		if err != nil || r.Errors > 0 {
			return errors.Join(err, errors.New(r.Last))
		}
		asked = size
		j := load.Job{Kind: load.Questions, Conns: 4, Time: b.length, Names: someNames(0, max(1, size/200), min(size, 200))}
		for round := range b.options.rounds {
			if err := b.sized(g.id, p, size, round, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// tailOf times the program itself, from its start to its end.
func tailOf(b *bench, g growth) error {
	for _, size := range g.sizes {
		dir := filepath.Join(b.world.Dir, "growth-audit")
		if err := records(filepath.Join(dir, "audit"), size); err != nil {
			return err
		}
		for round := range b.options.rounds {
			begun := time.Now()
			out, err := exec.Command(b.world.Binary, "tail", "--state", dir, "--sandbox", "s7", "--reason", "path_not_allowed", "--json").CombinedOutput()
			took := time.Since(begun)
			if err != nil {
				return fmt.Errorf("tail: %w: %s", err, out)
			}
			if n := bytes.Count(out, []byte("\n")); n != min(20, size/2000) {
				return fmt.Errorf("tail of %d records: %d lines: %.200s", size, n, out)
			}
			b.samples = append(b.samples, report.Sample{Workload: g.id, Peer: strconv.Itoa(size), Round: round, Values: map[report.Metric]float64{report.Wait: took.Seconds() * 1e3}})
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// records writes a log of n records of 20 sandboxes, of which one of a hundred
// has a reason that is seldom, and waits until it is indexed.
func records(dir string, n int) error {
	const writers = 20
	l, err := audit.Open(audit.Options{Dir: dir, RetainBytes: 20 << 30, Sync: audit.SyncNever})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		id := audit.NewID()
		wg.Go(func() {
			for i := range n / writers {
				e := &audit.Event{Kind: audit.KindHTTP, Phase: audit.PhaseDecision, Verdict: "allow", Reason: "rule_allow", Severity: audit.Info,
					Sandbox: &audit.Sandbox{Name: fmt.Sprint("s", w), ID: id}, Host: fmt.Sprintf("h%d.test", i%50_000)}
				if i%100 == 17 {
					e.Verdict, e.Reason, e.Severity = "deny", "path_not_allowed", audit.Medium
				}
				if errs[w] = l.Write(e); errs[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for was := int64(-1); was != size(dir); time.Sleep(time.Second) {
		was = size(dir)
	}
	return errors.Join(append(errs, l.Close())...)
}

// size is what the files below dir hold, in bytes.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, f os.DirEntry, err error) error {
		if err != nil {
			return nil // it went meanwhile
		}
		if info, err := f.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
