//go:build linux

// Package load is the client of the benchmark: a process that is put into a
// network namespace and does there what it is told, with as little work of its
// own as can be.
package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"sallyport/test/bench/measure"
)

// Mode is how a connection comes to its origin.
type Mode string

// The modes.
const (
	ByAddress Mode = "address" // to one address, whatever the name
	ByName    Mode = "name"    // to the address that the name has here
	ByConnect Mode = "connect" // by CONNECT through one address
)

// Target is a way to the origin.
type Target struct {
	Mode    Mode
	Address string // host:port; of ByName the port alone counts
	DNS     string // host:port of a name server
}

// Kind is a sort of work.
type Kind string

// The kinds.
const (
	KeepAlive Kind = "keepalive" // requests on kept connections, as fast as they come
	NewConn   Kind = "newconn"   // a connection for each request
	NewName   Kind = "newname"   // and a name for each
	Paced     Kind = "paced"     // requests at a fixed rate on one connection
	Download  Kind = "download"  // one large body
	Upload    Kind = "upload"    // one large body, the other way
	Idle      Kind = "idle"      // connections that are used once and kept
	Streams   Kind = "streams"   // HTTP/2, many streams on one connection
	Events    Kind = "events"    // a slow body, event by event
	Questions Kind = "questions" // DNS, as fast as they are answered
	Once      Kind = "once"      // DNS, each name once
	Fetch     Kind = "fetch"     // one verified request, whose body is told
)

// Job is one piece of work.
type Job struct {
	Kind   Kind
	Target Target
	Host   string
	Path   string
	Header string // further lines of the request's head
	Roots  string // PEM file; then certificates are verified
	Conns  int    // connections, streams or sockets
	Count  int    // requests, events or names; 0: as many as the time allows
	Rate   int    // requests a second
	Bytes  int64  // of a body
	Time   time.Duration
	Resume bool     // TLS sessions
	Names  []string // to be asked for, in turn
	Spaces []string // network namespaces that connections start in, in turn
	Serial int      // of the job, which makes its names new
}

// Result is what came of a job. Times are in nanoseconds.
type Result struct {
	Ready    bool // the job is prepared and waits for a line
	Ops      int
	Errors   int
	Last     string // error
	Wall     time.Duration
	P50, P99 int64
	Bytes    int64
	Text     string // of Fetch: the body
	Issuer   string // of Fetch: who signed the certificate
	Resumed  int    // handshakes that were
}

// worker does one job after another.
type worker struct {
	mu   sync.Mutex
	res  Result
	lat  []int64
	keep []*conn
	pool *dialer
}

// Serve does the jobs that come on in, a line each. For each of them it says
// that it is ready, waits for a line, works, and says what came of it; idle
// connections are kept until one more line.
func Serve(in io.Reader, out io.Writer) error {
	lines, enc := bufio.NewReader(in), json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var job Job
		if err := json.Unmarshal(line, &job); err != nil {
			return fmt.Errorf("job: %w", err)
		}
		w := &worker{}
		run := w.prepare(job)
		if err := enc.Encode(Result{Ready: true}); err != nil {
			return err
		}
		if _, err := lines.ReadBytes('\n'); err != nil {
			return err
		}
		run()
		if err := enc.Encode(w.result()); err != nil {
			return err
		}
		if job.Kind == Idle {
			if _, err := lines.ReadBytes('\n'); err != nil {
				return err
			}
		}
		for _, c := range w.keep {
			c.close()
		}
	}
}

// prepare does what is not to be measured, and returns what is.
func (w *worker) prepare(j Job) func() {
	d, err := newDialer(j)
	if err != nil {
		return func() { w.fail(err) }
	}
	w.pool = d
	switch j.Kind {
	case KeepAlive:
		return w.keepAlive(j)
	case NewConn, NewName:
		return w.newConnections(j)
	case Paced:
		return w.paced(j)
	case Download:
		return w.download(j)
	case Upload:
		return w.upload(j)
	case Idle:
		return w.idle(j)
	case Streams:
		return w.streams(j)
	case Events:
		return w.events(j)
	case Questions:
		return w.questions(j)
	case Once:
		return w.onceEach(j)
	case Fetch:
		return w.fetch(j)
	}
	return func() { w.fail(fmt.Errorf("no work is called %q", j.Kind)) }
}

// add keeps what one of several goroutines has measured.
func (w *worker) add(lat []int64, errs int, last error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lat = append(w.lat, lat...)
	w.res.Errors += errs
	if last != nil {
		w.res.Last = last.Error()
	}
}

func (w *worker) fail(err error) { w.add(nil, 1, err) }

func (w *worker) result() Result {
	slices.Sort(w.lat)
	r := w.res
	r.Ops = len(w.lat)
	r.P50, r.P99 = measure.Percentile(w.lat, .5), measure.Percentile(w.lat, .99)
	r.Resumed = int(w.pool.resumed())
	return r
}

// timed runs f n times at once and keeps how long it took for all.
func (w *worker) timed(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
	w.res.Wall = time.Since(start)
}
