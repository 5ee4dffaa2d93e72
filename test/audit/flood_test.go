//go:build linux

package audit_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

// memory is the resident memory of a process, in bytes.
func memory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return kb << 10
}

// latencies makes requests until stop and returns how long each took, sorted.
func latencies(t *testing.T, s *lab.Sandbox, url string, stop *atomic.Bool) []time.Duration {
	c := s.Client(t, false)
	var out []time.Duration
	for !stop.Load() || len(out) < 50 {
		begun := time.Now()
		if a, err := lab.Try(c, lab.NewRequest(t, "GET", url, "")); err != nil || a.Status != 200 {
			t.Errorf("the other sandbox: %d %s %v", a.Status, a.Reason(), err)
			return out
		}
		out = append(out, time.Since(begun))
	}
	slices.Sort(out)
	return out
}

func p99(d []time.Duration) time.Duration { return d[len(d)*99/100] }

// floodTime is how long a flood lasts, floodRate its attempts in a second.
const (
	floodTime = 4 * time.Second
	floodRate = 20_000
)

// paced calls send about floodRate times a second for floodTime, and returns
// how often it did without an error.
func paced(send func() error) (n int) {
	begun := time.Now()
	for time.Since(begun) < floodTime {
		due := int(time.Since(begun).Seconds() * floodRate)
		if n >= due {
			time.Sleep(time.Millisecond)
			continue
		}
		for range min(due-n, 200) {
			if send() == nil {
				n++
			}
		}
	}
	return n
}

// TestFlood: a sandbox that floods is recorded with exact counts in few records,
// costs no memory, and is no matter to another sandbox.
func TestFlood(t *testing.T) {
	l := world.lab // alone: it measures
	g := l.Gateway(t, lab.GatewayOptions{Policy: one(`
sandbox "bad" {}
sandbox "good" {
  allow "flood.good.test" { addresses = DOCS }
}
`)})
	bad, good := g.Attach(t, "bad"), g.Attach(t, "good")
	var idle atomic.Bool
	time.AfterFunc(2*time.Second, func() { idle.Store(true) })
	quiet := p99(latencies(t, good, "https://flood.good.test/", &idle))
	before := memory(t, g.PID())

	var over atomic.Bool
	var busy []time.Duration
	var beside sync.WaitGroup
	beside.Go(func() { busy = latencies(t, good, "https://flood.good.test/", &over) })

	var packets, asked int
	var floods sync.WaitGroup
	floods.Go(func() {
		c, err := bad.DialIP("udp", net.JoinHostPort(lab.Origin, "9999"))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		data := []byte("data")
		packets = paced(func() error {
			_, err := c.Write(data)
			for range 3 { // the refusal of the one before is reported first
				if err == nil {
					return nil
				}
				_, err = c.Write(data)
			}
			return err
		})
	})
	floods.Go(func() { asked = questions(t, bad) })
	floods.Wait()
	peak := memory(t, g.PID())
	over.Store(true)
	beside.Wait()

	// What the kernel and the program have counted is in the log within a
	// second or two.
	var told func() (packets, asked, records int)
	told = func() (packets, asked, records int) {
		for e, err := range audit.Read(t.Context(), []string{g.State + "/audit"}, audit.Filter{Sandbox: "bad", Blocked: true}) {
			must(t, err)
			if e.Phase != audit.PhaseDecision {
				continue
			}
			records++
			switch n := int(max(e.Count, 1)); e.Kind {
			case audit.KindPacket:
				packets += n
			case audit.KindDNS:
				asked += n
			}
		}
		return packets, asked, records
	}
	var gotPackets, gotAsked, records int
	within(15*time.Second, func() bool {
		time.Sleep(200 * time.Millisecond)
		gotPackets, gotAsked, records = told()
		return gotPackets >= packets && gotAsked >= asked
	})
	t.Logf("%d packets and %d questions in %v: %d records; memory %d MiB, %d MiB at the end; another sandbox's p99 %v, %v beside it",
		packets, asked, floodTime, records, before>>20, peak>>20, quiet, p99(busy))
	if packets < floodRate || asked < 1000 {
		t.Errorf("only %d packets and %d questions were sent", packets, asked)
	}
	if gotPackets != packets {
		t.Errorf("%d packets are recorded, %d were sent", gotPackets, packets)
	}
	if gotAsked != asked {
		t.Errorf("%d questions are recorded, %d were answered", gotAsked, asked)
	}
	if records > 5000 {
		t.Errorf("%d records", records)
	}
	if grown := peak - before; grown > 128<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if p := p99(busy); p > max(20*quiet, time.Second) {
		t.Errorf("another sandbox's p99 is %v, %v without the flood", p, quiet)
	}
	chained(t, g.State+"/audit")
}

// questions asks for new names as fast as they are answered, over some sockets
// with many questions under way on each, and returns how many were answered.
func questions(t *testing.T, s *lab.Sandbox) int {
	var answered atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(floodTime)
	for w := range 8 {
		wg.Go(func() {
			c, err := s.DialIP("udp", "192.0.2.53:53")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 1500)
			for i := 0; time.Now().Before(end); i++ {
				// A question that is lost on the way was not decided, so only one
				// is under way at a time.
				m := new(dns.Msg)
				m.SetQuestion(fmt.Sprintf("w%d-%d.evil.test.", w, i), dns.TypeA)
				b, err := m.Pack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				if _, err := c.Write(b); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadAtLeast(c, buf, 12); err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	return int(answered.Load())
}
