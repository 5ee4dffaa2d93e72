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
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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
	stop       func() map[string][]request

	forwarded, understood map[string][]request
}

func newLanes(t *testing.T, l *lab) []*lane {
	t.Helper()
	goAddr, u, stopGo := goOrigin(t)
	nginxAddr, stopNginx := nginxOrigin(t)
	return []*lane{
		{name: "net/http", plain: newTap(t, goAddr, nil), tls: newTap(t, goAddr, l.origins), stop: func() map[string][]request { stopGo(); return u.by }},
		{name: "nginx", plain: newTap(t, nginxAddr, nil), tls: newTap(t, nginxAddr, l.origins), stop: stopNginx},
	}
}

// TestDifferential: for every sample, the requests that were decided on, those
// that were forwarded and those that either origin understood are the same.
func TestDifferential(t *testing.T) {
	l := newLab(t)
	lanes := newLanes(t, l)
	l.allow(lanes[0].plain.port, lanes[0].tls.port, lanes[1].plain.port, lanes[1].tls.port)
	samples := collect(t)
	streams := collectStreams(len(samples))
	all(lanes, samples, func(w *lane, s sample) {
		if err := l.send(w, s); err != nil {
			t.Errorf("%s: %s %q: %v", w.name, s.host, s.raw, err)
		}
	})
	all(lanes, streams, func(w *lane, s stream) {
		if err := l.sendStream(w, s); err != nil {
			t.Errorf("%s: %s %s: %v", w.name, s.host, s.String(), err)
		}
	})
	l.stop()
	events := l.events()
	for _, w := range lanes {
		w.forwarded = map[string][]request{}
		w.plain.forwarded(t, w.forwarded)
		w.tls.forwarded(t, w.forwarded)
		w.understood = w.stop()
	}
	var sum tally
	for _, s := range samples {
		for _, w := range lanes {
			v := w.view(s.host, events[s.host])
			v.raw, v.plain = s.raw, s.plain
			v.whole = bytes.Contains(bytes.TrimPrefix(s.raw, []byte("\r\n")), []byte("\r\n\r\n"))
			sum.add(v)
			v.check(t)
		}
	}
	for _, s := range streams {
		for _, w := range lanes {
			v := w.view(s.host, events[s.host])
			v.raw, v.plain = []byte(s.String()), s.plain
			sum.add(v)
			v.check(t)
		}
	}
	known := map[string]bool{}
	for _, s := range samples {
		known[s.host] = true
	}
	for _, s := range streams {
		known[s.host] = true
	}
	for _, w := range lanes {
		for host, rs := range w.forwarded {
			if !known[host] {
				t.Errorf("%s: the gateway forwarded to a host that no sample is of: %v", w.name, rs)
			}
		}
	}
	t.Logf("%d samples of HTTP/1.1, %d of HTTP/2, each to %d origins: %+v", len(samples), len(streams), len(lanes), sum)
	if sum.Forwarded < made || sum.Denied < made/4 || sum.Plain < made/2 {
		t.Errorf("the samples are not what they should be: %+v", sum)
	}
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
	for i, raw := range kept(t) {
		s := sample{raw: raw}
		g.finish(&s)
		s.tls = i%2 == 0 // without TLS the first bytes must be those of HTTP
		out = append(out, s)
	}
	for range made {
		out = append(out, g.sample())
	}
	for i := range out {
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
	if s.tls {
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
