// Package differential holds together what the gateway decided on, what it
// forwarded, and what two origins of other makes understood.
package differential

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/audit"
)

const (
	seed    = 20
	made    = 3000 // samples of HTTP/1.1, beside those that are kept
	clients = 12   // at once, to each origin
)

// lane is the way of a sample to one origin, and what was seen there.
type lane struct {
	name       string
	plain, tls *tap
	every      int  // of how many samples of HTTP/1.1 one goes this way
	secure     bool // inside TLS always
	strict     bool // the origin takes no stray percent sign
	stop       func() map[string][]request

	forwarded, understood map[string][]request
}

func newLanes(t *testing.T, l *lab) []*lane {
	t.Helper()
	goAddr, stopGo := goOrigin(t)
	nginxAddr, stopNginx := nginxOrigin(t)
	direct, stopDirect := http2Origin(t, l.origins)
	return []*lane{
		{name: "HTTP/2", plain: direct, tls: direct, every: 4, secure: true, strict: true, stop: stopDirect},
		{name: "net/http", every: 1, plain: newTap(t, goAddr, nil), tls: newTap(t, goAddr, l.origins), stop: stopGo},
		{name: "nginx", every: 1, plain: newTap(t, nginxAddr, nil), tls: newTap(t, nginxAddr, l.origins), stop: stopNginx},
	}
}

// corpus is all that is sent.
type corpus struct {
	samples []sample
	streams []stream
	grown   []frames
}

func newCorpus(t testing.TB) corpus {
	c := corpus{samples: collect(t)}
	c.streams = collectStreams(len(c.samples))
	for i, raw := range kept(t, framesFile) {
		c.grown = append(c.grown, frames{fmt.Sprintf("c%05d.%s", len(c.samples)+len(c.streams)+i, domain), raw})
	}
	return c
}

// hosts are the names of all samples.
func (c corpus) hosts() map[string]bool {
	out := map[string]bool{}
	for _, s := range c.samples {
		out[s.host] = true
	}
	for _, s := range c.streams {
		out[s.host] = true
	}
	for _, s := range c.grown {
		out[s.host] = true
	}
	return out
}

// answers are what the clients of HTTP/2 were told, by lane and host.
type answers struct {
	mu sync.Mutex
	by map[string]told
}

func (a *answers) add(w *lane, host string, end told) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[w.name+" "+host] = end
}

func (a *answers) of(w *lane, host string) told { return a.by[w.name+" "+host] }

// TestDifferential: for every sample, the requests that were decided on, those
// that were forwarded and those that either origin understood are the same, or
// they were refused on the record.
func TestDifferential(t *testing.T) {
	l := newLab(t)
	lanes := newLanes(t, l)
	var ports []uint16
	for _, w := range lanes {
		ports = append(ports, w.plain.port, w.tls.port)
	}
	l.allow(ports...)
	c := newCorpus(t)
	seen := l.sendAll(t, lanes, c)
	l.stop()
	events := l.events()
	for _, w := range lanes {
		w.forwarded = map[string][]request{}
		w.plain.forwarded(t, w.forwarded)
		w.tls.forwarded(t, w.forwarded)
		w.understood = w.stop()
	}
	sum := judge(t, lanes, c, seen, events)
	known := c.hosts()
	for _, w := range lanes {
		for host, rs := range w.forwarded {
			if !known[host] {
				t.Errorf("%s: the gateway forwarded to a host that no sample is of: %v", w.name, rs)
			}
		}
	}
	t.Logf("%d samples of HTTP/1.1, %d of HTTP/2, to up to %d origins each: %+v", len(c.samples), len(c.streams)+len(c.grown), len(lanes), sum)
	if sum.Forwarded < made || sum.Denied < made/4 || sum.Plain < made/2 {
		t.Errorf("the samples are not what they should be: %+v", sum)
	}
}

// sendAll sends each sample on each lane that it is for.
func (l *lab) sendAll(t *testing.T, lanes []*lane, c corpus) *answers {
	seen := &answers{by: map[string]told{}}
	all(lanes, c.samples, func(w *lane, s sample) {
		if s.n%w.every != 0 {
			return
		}
		if err := l.send(w, s); err != nil {
			t.Errorf("%s: %s %q: %v", w.name, s.host, s.raw, err)
		}
	})
	all(lanes, c.streams, func(w *lane, s stream) {
		end, err := l.sendStream(w, s)
		if err != nil {
			t.Errorf("%s: %s %s: %v", w.name, s.host, s.String(), err)
		}
		seen.add(w, s.host, end)
	})
	all(lanes, c.grown, func(w *lane, s frames) {
		end, err := l.sendFrames(w, s)
		if err != nil {
			t.Errorf("%s: %s %q: %v", w.name, s.host, s.raw, err)
		}
		seen.add(w, s.host, end)
	})
	return seen
}

// judge checks each sample on each lane.
func judge(t *testing.T, lanes []*lane, c corpus, seen *answers, events map[string][]*audit.Event) (sum tally) {
	check := func(v *view) {
		sum.add(v)
		v.check(t)
	}
	for _, w := range lanes {
		for _, s := range c.samples {
			if s.n%w.every != 0 {
				continue
			}
			v := w.view(s.host, events[s.host])
			v.raw, v.plain = s.raw, w.expected(s.plain)
			v.whole = bytes.Contains(bytes.TrimPrefix(s.raw, []byte("\r\n")), []byte("\r\n\r\n"))
			check(v)
		}
		for _, s := range c.streams {
			v := w.view(s.host, events[s.host])
			v.raw, v.plain = []byte(s.String()), s.plain
			v.least, v.most = seen.of(w, s.host).recorded(len(s.exchanges))
			check(v)
		}
		for _, s := range c.grown {
			v := w.view(s.host, events[s.host])
			v.raw, v.least = s.raw, seen.of(w, s.host).streams
			v.most, _ = s.heads()
			v.most++ // what is broken may look like one more
			check(v)
		}
	}
	return sum
}

// expected is what the origin of the lane is to understand; nil if that cannot
// be said.
func (w *lane) expected(plain []request) []request {
	if w.strict && slices.ContainsFunc(plain, func(r request) bool { return stray(r.Target) }) {
		return nil
	}
	return plain
}

// stray says whether a path has a percent sign that begins no escape.
func stray(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	_, err := url.PathUnescape(path)
	return err != nil
}

// tally says whether the samples were worth it.
type tally struct{ Plain, Forwarded, Denied, BrokenOff, RefusedByOrigin, Nothing int }

func (s *tally) add(v *view) {
	if v.plain != nil {
		s.Plain++
	}
	s.Denied += len(v.denied)
	s.Forwarded += len(v.forwarded)
	for _, r := range v.forwarded {
		if r.partial {
			s.BrokenOff++
		}
	}
	for _, r := range v.understood {
		if r.status != 0 && !r.partial {
			s.RefusedByOrigin++
		}
	}
	if len(v.denied)+len(v.allowed) == 0 {
		s.Nothing++
	}
}

// all does each sample on each lane, some at once.
func all[T any](lanes []*lane, samples []T, do func(*lane, T)) {
	var wg sync.WaitGroup
	for _, w := range lanes {
		var next atomic.Int64
		for range clients {
			wg.Go(func() {
				for i := next.Add(1) - 1; int(i) < len(samples); i = next.Add(1) - 1 {
					do(w, samples[i])
				}
			})
		}
	}
	wg.Wait()
}

// collect makes the samples: those that are kept, then those of the seed.
func collect(t testing.TB) []sample {
	t.Helper()
	g := newGenerator(seed)
	var out []sample
	for i, raw := range kept(t, corpusFile) {
		s := sample{raw: raw}
		g.finish(&s)
		s.tls = i%2 == 0 // without TLS the first bytes must be those of HTTP
		out = append(out, s)
	}
	for range made {
		out = append(out, g.sample())
	}
	for i := range out {
		out[i].n = i
		out[i].place(fmt.Sprintf("c%05d.%s", i, domain))
	}
	return out
}

// place gives a sample its name.
func (s *sample) place(host string) {
	s.host = host
	old := len(s.raw)
	s.raw = bytes.ReplaceAll(s.raw, []byte(hostMark), []byte(host))
	s.raw = bytes.ReplaceAll(s.raw, []byte(strings.ToUpper(hostMark)), []byte(strings.ToUpper(host)))
	if len(s.raw) != old {
		panic("the mark must be as long as the names: lengths of bodies depend on it")
	}
	for i := range s.plain {
		r := &s.plain[i]
		for _, f := range []*string{&r.Host, &r.Body} {
			*f = strings.ReplaceAll(*f, hostMark, host)
			*f = strings.ReplaceAll(*f, strings.ToUpper(hostMark), strings.ToUpper(host))
		}
	}
}

// answerTime bounds what the gateway may take for one sample.
const answerTime = 20 * time.Second

// send writes a sample and reads until the gateway has nothing more to say.
func (l *lab) send(w *lane, s sample) error {
	port := w.plain.port
	if s.tls = s.tls || w.secure; s.tls {
		port = w.tls.port
	}
	tcp, err := l.dial(s.host, port)
	if err != nil {
		return err
	}
	defer tcp.Close()
	_ = tcp.SetDeadline(time.Now().Add(answerTime)) // an error comes again
	var c net.Conn = tcp
	if s.tls {
		t, err := l.secure(tcp, s.host, "http/1.1")
		if err != nil {
			return err
		}
		c = t
	}
	go func() {
		at := 0
		cuts := slices.Sorted(slices.Values(s.cuts))
		for _, cut := range append(cuts, len(s.raw)) {
			if _, err := c.Write(s.raw[at:cut]); err != nil {
				return // it was refused before it was whole
			}
			if at = cut; len(cuts) > 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if t, ok := c.(*tls.Conn); ok {
			_ = t.CloseWrite()
			return
		}
		_ = tcp.CloseWrite()
	}()
	if _, err = io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the gateway neither answers nor closes")
	}
	return nil
}
