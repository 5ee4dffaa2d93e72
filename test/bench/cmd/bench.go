//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"sallyport/test/bench/load"
	"sallyport/test/bench/measure"
	"sallyport/test/bench/origin"
	"sallyport/test/bench/peers"
	"sallyport/test/bench/report"
)

// bench is one run.
type bench struct {
	options
	first    int // round
	world    *peers.World
	all      []*peers.Peer // those that were started and answer
	gateways map[string]*peers.Gateway
	failed   map[string]bool
	jobs     int // that were measured
	samples  report.Samples
	out      io.Writer
}

// wanted are the peers of a workload that the flags admit.
func (b *bench) wanted(w workload) []string {
	list := w.peers
	if list == nil {
		list = ordinary()
	}
	if len(b.peers) == 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(p string) bool {
		return !slices.ContainsFunc(b.peers, func(want string) bool {
			return p == want || want == "sallyport" && strings.HasPrefix(p, "sallyport")
		})
	})
}

// start starts the peers of a workload that are not there yet, and leaves out
// those that do not answer.
func (b *bench) start(w workload) []*peers.Peer {
	var out []*peers.Peer
	for _, name := range b.wanted(w) {
		p := b.find(name)
		if p == nil && !b.failed[name] {
			if err := b.open(name); err != nil {
				fmt.Fprintf(b.out, "# %s is left out: %v\n", name, err)
				b.failed[name] = true
			}
			p = b.find(name)
		}
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

func (b *bench) find(name string) *peers.Peer {
	for _, p := range b.all {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// open starts the peer of this name and those that come with it.
func (b *bench) open(name string) error {
	for _, p := range peers.Others() {
		if p.Name == name {
			if err := p.Start(b.world); err != nil {
				return err
			}
			return b.admit(p)
		}
	}
	if name == "sallyport-passthrough" {
		if b.find("sallyport-netns") == nil {
			if err := b.open("sallyport-netns"); err != nil {
				return err
			}
		}
		return b.admit(passthrough(b.find("sallyport-netns")))
	}
	if name == "sallyport-run" {
		p, err := b.world.Run()
		if err != nil {
			return err
		}
		return b.admit(p)
	}
	var spec peers.Gateway
	for _, g := range gateways() { // the longest name that fits
		if strings.HasPrefix(name, g.Name+"-") && len(g.Name) > len(spec.Name) {
			spec = g
		}
	}
	if spec.Name == "" || b.gateways[spec.Name] != nil {
		return fmt.Errorf("no peer is called so")
	}
	g, err := b.world.NewGateway(spec)
	if err != nil {
		return err
	}
	b.gateways[spec.Name] = g
	if err := g.Start(); err != nil {
		return err
	}
	return b.admit(g.Peers...)
}

// admit takes peers in that give a verified answer.
func (b *bench) admit(list ...*peers.Peer) error {
	for _, p := range list {
		issuer, err := p.Check()
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "# %-22s %s\n", p.Name, issuer)
		b.all = append(b.all, p)
	}
	return nil
}

// run measures what is wanted, workload by workload.
func (b *bench) run() error {
	all := workloads()
	for _, w := range all {
		if !b.chosen(w.id) || w.after != "" && b.chosen(w.after) {
			continue
		}
		together := []workload{w}
		for _, v := range all {
			if v.after == w.id && b.chosen(v.id) {
				together = append(together, v)
			}
		}
		list := b.start(w)
		if len(list) == 0 {
			continue
		}
		var err error
		if w.special != nil {
			err = w.special(b, w)
		} else {
			err = b.rounds(together, list)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.id, err)
		}
		for _, w := range together {
			b.samples.Table(b.out, w.id, w.title, w.metrics, w.ratio, w.to)
		}
	}
	return nil
}

func (b *bench) chosen(id string) bool { return len(b.only) == 0 || slices.Contains(b.only, id) }

// rounds measures each peer once a round, so that what the machine does
// meanwhile falls on all of them. Every other round is in reverse.
func (b *bench) rounds(together []workload, list []*peers.Peer) error {
	rounds := b.options.rounds
	if most := together[0].most; most > 0 {
		rounds = min(rounds, most)
	}
	for round := b.first; round < b.first+rounds; round++ {
		order := slices.Clone(list)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, p := range order {
			for _, w := range together {
				if err := b.once(w, p, round); err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
			}
		}
	}
	return nil
}

// once measures one peer in one round.
func (b *bench) once(w workload, p *peers.Peer, round int) error {
	if w.fresh {
		if err := p.Restart(); err != nil {
			return err
		}
		if _, err := p.Check(); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
	s, err := b.measure(w.id, p, w.job(b.options, round), round)
	if err != nil {
		return err
	}
	b.samples = append(b.samples, s)
	time.Sleep(w.pause)
	return nil
}

// snapshot is what the counters say at one moment.
type snapshot struct {
	at                time.Time
	peer, others, all time.Duration
	rss               float64
}

func (b *bench) snapshot(p *peers.Peer) snapshot {
	pids := p.PIDs()
	s := snapshot{at: time.Now(), peer: measure.CPU(pids...), all: measure.Busy(), rss: measure.RSS(pids...)}
	s.others = measure.CPU(append(measure.Tree(p.Client.PID()), b.world.Origin.PID(), os.Getpid())...)
	if slices.Contains(pids, p.Client.PID()) { // which is the parent of the client
		s.others -= s.peer
	}
	return s
}

// settle is how long connections are left alone before they are weighed as
// idle: a process may give back what their opening took.
const settle = 12 * time.Second

// measure has one job done by way of a peer.
func (b *bench) measure(id string, p *peers.Peer, j load.Job, round int) (report.Sample, error) {
	if j.Host == "" {
		j.Host = p.Asked()
	}
	b.jobs++
	j.Target, j.Header, j.Serial = p.Target, peers.Header, b.jobs
	var first, last snapshot
	finish := func() {}
	r, err := p.Client.Do(j, func() {
		finish = b.profile(id, p, j.Time)
		first = b.snapshot(p)
	}, func() {
		if j.Kind == load.Idle {
			time.Sleep(settle)
		}
		if last = b.snapshot(p); j.Kind == load.Idle {
			b.holds(id, p)
		}
	})
	finish()
	s := report.Sample{Workload: id, Peer: p.Name, Round: round, Values: map[report.Metric]float64{report.Errors: float64(r.Errors), report.Loads: measure.Load()}, Error: r.Last}
	if err != nil {
		return s, err
	}
	wall := last.at.Sub(first.at)
	s.Values[report.Others] = max(0, float64(last.all-first.all-(last.peer-first.peer)-(last.others-first.others))/float64(wall))
	if r.Ops == 0 {
		return s, nil
	}
	ops, used := float64(r.Ops), last.peer-first.peer
	hasPeer := len(p.PIDs()) > 0
	set := func(m report.Metric, v float64, ok bool) {
		if ok {
			s.Values[m] = v
		}
	}
	set(report.CPU, float64(used)/1e3/ops, hasPeer)
	set(report.Rate, ops/r.Wall.Seconds(), r.Wall > 0)
	set(report.P50, float64(r.P50)/1e3, true)
	set(report.P99, float64(r.P99)/1e3, true)
	set(report.Memory, last.rss/1024, hasPeer)
	set(report.Speed, float64(r.Bytes)/(1<<20)/r.Wall.Seconds(), r.Bytes > 0)
	set(report.Cost, used.Seconds()*(1<<30)/float64(r.Bytes), r.Bytes > 0 && hasPeer)
	set(report.Again, 100*float64(r.Resumed)/ops, j.Resume)
	set(report.Each, (last.rss-first.rss)/ops, j.Kind == load.Idle && hasPeer)
	return s, nil
}

// passthrough is a peer that is asked for the name that is not opened.
func passthrough(p *peers.Peer) *peers.Peer {
	q := *p
	q.Name, q.Host, q.Swaps = "sallyport-passthrough", origin.RawHost, false
	return &q
}
