//go:build linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"sallyport/test/bench/load"
	"sallyport/test/bench/measure"
	"sallyport/test/bench/peers"
	"sallyport/test/bench/report"
)

// goroutines asks a daemon how many it has.
func goroutines(g *peers.Gateway) (float64, error) {
	text, err := g.Call(http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`total (\d+)`).FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("no count of goroutines in %.40q", text)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// leaks compares the memory after many finished connections with that after
// few.
func leaks(b *bench, w workload) error {
	p := b.find("sallyport-netns")
	if p == nil {
		return nil
	}
	job := load.Job{Kind: load.NewConn, Path: "/small", Conns: 16, Count: b.tunnels / 50}
	if err := p.Restart(); err != nil {
		return err
	}
	if _, err := p.Check(); err != nil {
		return err
	}
	idle, err := goroutines(b.gateways["sallyport"])
	if err != nil {
		return err
	}
	if _, err := b.measure(w.id, p, job, 0); err != nil {
		return err
	}
	time.Sleep(2 * settle)
	few := measure.RSS(p.PIDs()...)
	job.Count = b.tunnels
	s, err := b.measure(w.id, p, job, 0)
	if err != nil {
		return err
	}
	time.Sleep(2 * settle)
	many := measure.RSS(p.PIDs()...)
	after, err := goroutines(b.gateways["sallyport"])
	if err != nil {
		return err
	}
	s.Values[report.Growth], s.Values[report.Memory] = many/few, many/1024
	b.samples = append(b.samples, s)
	fmt.Fprintf(b.out, "# leaks: %.0f KiB after %d connections, %.0f KiB after %d; goroutines %.0f before, %.0f after\n", few, b.tunnels/50, many, b.tunnels, idle, after)
	return nil
}

// crowd compares a daemon with one sandbox with one that has many: the same load
// on as many connections comes from one of them, while the others rest, and from
// all, as far as there are connections. Each of these is then in a namespace of
// its own, and so is a part of what the kernel does.
func crowd(b *bench, w workload) error {
	one, many, g := b.find("sallyport-netns"), b.find("sallyport-crowd-netns"), b.gateways["sallyport-crowd"]
	if one == nil || many == nil {
		return nil
	}
	single, resting, all := *one, *many, *many
	single.Name, resting.Name, all.Name = "sallyport-1-sandbox", fmt.Sprintf("sallyport-1-of-%d", b.crowd), fmt.Sprintf("sallyport-%d-sandboxes", b.crowd)
	time.Sleep(2 * settle)
	before := measure.RSS(many.PIDs()...)
	list, err := b.world.Spaces(b.crowd)
	if err != nil {
		return err
	}
	for _, space := range list {
		if err := g.Attach(map[string]any{"sandbox": "bench", "netns": space}); err != nil {
			return err
		}
	}
	time.Sleep(2 * settle)
	each := (measure.RSS(many.PIDs()...) - before) / float64(len(list))
	b.holds(w.id, many)
	job := load.Job{Kind: load.KeepAlive, Path: "/small", Conns: 100, Time: b.length}
	from := func(spaces []string) load.Job { j := job; j.Spaces = spaces; return j }
	rows := []struct {
		peer *peers.Peer
		job  load.Job
	}{{&single, job}, {&resting, from(list[:1])}, {&all, from(list)}}
	for round := b.first; round < b.first+b.options.rounds; round++ {
		for _, row := range rows {
			s, err := b.measure(w.id, row.peer, row.job, round)
			if err != nil {
				return err
			}
			if row.peer == &all {
				s.Values[report.Each] = each
			}
			b.samples = append(b.samples, s)
		}
		slices.Reverse(rows) // as elsewhere
	}
	return nil
}

// profile takes a CPU profile of a daemon of sallyport for the length of a job,
// or of the first second of one that has no length, if that is asked for, and
// returns what waits for it.
func (b *bench) profile(id string, p *peers.Peer, length time.Duration) func() {
	seconds := max(1, int(length/time.Second))
	if b.profiles == "" {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.keep(id, p, "pprof", fmt.Sprintf("profile?seconds=%d", seconds))
	}()
	return func() { <-done }
}

// holds keeps what a daemon of sallyport holds at this moment, if that is asked
// for: its memory and its goroutines.
func (b *bench) holds(id string, p *peers.Peer) {
	b.keep(id, p, "heap.pprof", "heap")
	b.keep(id, p, "goroutines.txt", "goroutine?debug=1")
}

// keep writes what a daemon says of itself into the folder of profiles.
func (b *bench) keep(id string, p *peers.Peer, kind, what string) {
	g := b.daemon(p)
	if b.profiles == "" || g == nil {
		return
	}
	text, err := g.Call(http.MethodGet, "/debug/pprof/"+what, nil)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.profiles, id+"-"+p.Name+"."+kind), text, 0o644)
	}
	if err != nil {
		fmt.Fprintf(b.out, "# no %s of %s in %s: %v\n", kind, p.Name, id, err)
	}
}

// daemon is what a peer is served by, if that is one of sallyport.
func (b *bench) daemon(p *peers.Peer) *peers.Gateway {
	for _, g := range b.gateways {
		if slices.Equal(p.PIDs(), []int{g.PID()}) {
			return g
		}
	}
	return nil
}
