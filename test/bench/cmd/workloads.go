//go:build linux

package main

import (
	"time"

	"sallyport/test/bench/load"
	"sallyport/test/bench/origin"
	"sallyport/test/bench/peers"
	"sallyport/test/bench/report"
)

// workload is something that is asked of every peer in each round.
type workload struct {
	id, title string
	job       func(o options, round int) load.Job
	metrics   []report.Metric
	ratio     report.Metric
	to        []string // whose ratios the table shows
	peers     []string // "": those of ordinary()
	drawn     bool     // in the picture
	summary   report.Metric
	fresh     bool // needs a new process
	most      int  // rounds; 0: as many as of the others
	pause     time.Duration
	after     string                       // workload beside which each round is measured, peer by peer
	special   func(*bench, workload) error // instead of rounds of the job
}

// ordinary are the peers of most workloads.
func ordinary() []string {
	return []string{"direct", "splice", "nginx", "haproxy", "squid", "mitmproxy", "goproxy", "goproxy-default", "nethttp", "sallyport-netns", "sallyport-interface", "sallyport-run"}
}

func withH2() []string {
	return []string{"direct", "splice", "nginx", "haproxy", "mitmproxy", "goproxy-h2", "nethttp", "sallyport-netns", "sallyport-interface", "sallyport-run"}
}

// workloads in the order in which they are run.
func workloads() []workload {
	perRequest := []report.Metric{report.CPU, report.Rate, report.P50, report.P99, report.Memory}
	delay := []report.Metric{report.P50, report.P99}
	usual := []string{"splice", "nginx", "goproxy", "nethttp"}
	job := func(j load.Job) func(options, int) load.Job {
		return func(o options, _ int) load.Job {
			if j.Time == 0 {
				j.Time = o.length
			}
			return j
		}
	}
	// With 100,000 rules the daemon collects its garbage once in a second or two,
	// which is then much: a short round would have that once more or less.
	long := func(j load.Job) func(options, int) load.Job {
		return func(o options, _ int) load.Job {
			j.Time = max(o.length, 4*time.Second)
			return j
		}
	}
	small := func(kind load.Kind, conns int) load.Job { return load.Job{Kind: kind, Path: "/small", Conns: conns} }
	resumed := small(load.NewConn, 16)
	resumed.Resume = true
	return []workload{
		{id: "W1", drawn: true, summary: report.CPU, title: "1 KiB, 100 kept connections", job: job(small(load.KeepAlive, 100)), metrics: perRequest, ratio: report.CPU, to: usual},
		{id: "W1k", drawn: true, summary: report.CPU, title: "64 KiB, 20 kept connections", job: job(load.Job{Kind: load.KeepAlive, Path: "/bytes?n=65536", Conns: 20}), metrics: perRequest, ratio: report.CPU, to: usual},
		{id: "W2", drawn: true, summary: report.CPU, title: "a new connection for each request, full handshakes", job: job(small(load.NewConn, 16)), metrics: perRequest, ratio: report.CPU, to: usual},
		{id: "W2r", after: "W2", summary: report.CPU, title: "the same with resumed handshakes", job: job(resumed), metrics: append([]report.Metric{report.Again}, perRequest...), ratio: report.CPU, to: usual},
		{id: "W3", drawn: true, summary: report.CPU, title: "a new name for each request, looked up before", metrics: perRequest, ratio: report.CPU, to: []string{"goproxy", "squid", "nginx"}, pause: 3 * time.Second,
			job: func(o options, _ int) load.Job {
				return load.Job{Kind: load.NewName, Path: "/small", Host: origin.NewZone, Conns: 8, Count: o.names}
			}},
		{id: "W4", summary: report.Speed, title: "download of one body", metrics: []report.Metric{report.Speed, report.Cost}, ratio: report.Speed, to: []string{"splice", "nginx", "squid"},
			peers: append(ordinary(), "sallyport-passthrough"), job: func(o options, _ int) load.Job { return load.Job{Kind: load.Download, Path: "/bytes", Bytes: o.bulk} }},
		{id: "W4u", summary: report.Speed, title: "upload of one body", metrics: []report.Metric{report.Speed, report.Cost}, ratio: report.Speed, to: []string{"splice", "nginx", "squid"},
			peers: append(ordinary(), "sallyport-passthrough"), job: func(o options, _ int) load.Job { return load.Job{Kind: load.Upload, Path: "/upload", Bytes: o.bulk} }},
		{id: "W5", summary: report.P50, title: "latency at 200 requests a second", job: job(load.Job{Kind: load.Paced, Path: "/small", Rate: 200}), metrics: []report.Metric{report.P50, report.P99, report.CPU}, ratio: report.P50, to: []string{"direct", "splice", "goproxy", "nethttp"}},
		{id: "W6", summary: report.Each, title: "memory of 2,000 idle connections", metrics: []report.Metric{report.Each, report.Memory}, ratio: report.Each, to: usual, fresh: true, most: 3,
			job: func(o options, _ int) load.Job { return load.Job{Kind: load.Idle, Path: "/small", Count: o.idle} }},
		{id: "W7", drawn: true, summary: report.CPU, title: "HTTP/2, 100 streams on one connection", job: job(load.Job{Kind: load.Streams, Path: "/small", Conns: 100}), metrics: perRequest, ratio: report.CPU, to: []string{"splice", "nginx", "goproxy-h2", "nethttp"}, peers: withH2()},
		{id: "W8", summary: report.P50, title: "delay of server-sent events", job: job(load.Job{Kind: load.Events, Path: "/events?n=100&ms=10", Count: 100}), metrics: delay, ratio: report.P50, to: usual},
		{id: "W8n", summary: report.P50, title: "delay of lines of JSON", job: job(load.Job{Kind: load.Events, Path: "/events?n=100&ms=10&type=application/x-ndjson", Count: 100}), metrics: delay, ratio: report.P50, to: usual},
		{id: "W9", summary: report.CPU, title: "DNS, 100,000 names known", metrics: []report.Metric{report.CPU, report.Rate, report.P50, report.P99}, ratio: report.Rate, to: []string{"dnsmasq", "unbound"},
			peers: []string{"dnsmasq", "unbound", "sallyport-100k-netns"}, job: job(load.Job{Kind: load.Questions, Conns: 4, Names: someNames(0, 200, 200)})},
		{id: "W9n", title: "DNS, names that nobody has asked for before", metrics: []report.Metric{report.CPU, report.Rate, report.P50, report.P99}, ratio: report.P50, to: []string{"dnsmasq", "unbound"},
			peers: []string{"dnsmasq", "unbound", "sallyport-100k-netns"}, job: func(_ options, round int) load.Job {
				return load.Job{Kind: load.Once, Conns: 4, Names: someNames(50_000+1000*round, 1, 200)}
			}},
		{id: "W10", title: "W1 with more rules and secrets", job: long(small(load.KeepAlive, 100)), metrics: perRequest, ratio: report.CPU,
			to:    []string{"sallyport-plain-netns", "sallyport-netns", "sallyport-10-netns"},
			peers: []string{"sallyport-plain-netns", "sallyport-netns", "sallyport-1000s-netns", "sallyport-10-netns", "sallyport-100k-netns"}},
		{id: "leaks", title: "memory after 50,000 finished connections", metrics: []report.Metric{report.Growth, report.Memory}, peers: []string{"sallyport-netns"}, special: leaks},
		{id: "sandboxes", title: "W1 among 1,000 sandboxes", metrics: []report.Metric{report.CPU, report.Rate, report.Each}, ratio: report.CPU, to: []string{"sallyport-1-sandbox"},
			peers: []string{"sallyport-netns", "sallyport-crowd-netns"}, special: crowd},
	}
}

// someNames are n of those that the name servers know.
func someNames(from, step, n int) []string {
	var out []string
	for i := range n {
		out = append(out, peers.RuleName(from+i*step))
	}
	return out
}

// gateways are the daemons behind the peers that are sallyport, by the name
// that their peers begin with.
func gateways() []peers.Gateway {
	return []peers.Gateway{
		{Name: "sallyport", Secrets: 1, Wire: true},
		{Name: "sallyport-plain"},
		{Name: "sallyport-1000s", Secrets: 1000},
		{Name: "sallyport-10", Secrets: 1, Rules: 10},
		{Name: "sallyport-100k", Secrets: 1, Rules: 100_000},
		{Name: "sallyport-crowd", Secrets: 1},
	}
}

// options are how much is done.
type options struct {
	only, peers    []string
	profiles       string // folder for CPU profiles of sallyport
	rounds         int
	length         time.Duration
	names          int   // of W3
	bulk           int64 // bytes of W4
	idle           int   // connections of W6
	tunnels, crowd int
	quick          bool
}

func (o *options) fill() {
	length, names := 2*time.Second, 2000
	o.bulk, o.idle, o.tunnels, o.crowd = 512<<20, 2000, 50_000, 1000
	if o.quick {
		length, names = time.Second, 100
		o.bulk, o.idle, o.tunnels, o.crowd = 64<<20, 500, 3000, 50
	}
	if o.length == 0 {
		o.length = length
	}
	if o.names == 0 {
		o.names = names
	}
	if o.rounds == 0 {
		o.rounds = 5
		if o.quick {
			o.rounds = 1
		}
	}
}
