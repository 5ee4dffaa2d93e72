package http2guard

import (
	"bytes"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// told counts the requests that faults are about.
func told(faults []Fault, of func(Fault) bool) (n int) {
	for _, f := range faults {
		if of(f) {
			n += int(max(f.Count, 1))
		}
	}
	return n
}

// settle waits until as many requests as were sent are accounted for.
func (s *served) settle(t *testing.T, want int) (called int, faults []Fault) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if called, faults = s.counts(); called+told(faults, func(Fault) bool { return true }) >= want {
			break
		}
	}
	return called, faults
}

// ends waits until so many streams have ended.
func (s *served) ends(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		f, err := s.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() || f.Header().Type == http2.FrameRSTStream {
			n--
		}
	}
}

// TestCrowd: a request over the bound on streams is a fault with its name, and
// of many the first few are.
func TestCrowd(t *testing.T) {
	const streams, more = 10, 60
	hold := make(chan struct{})
	s := serveHeld(t, hold, streams)
	for i := range uint32(streams + more) {
		s.ask(2*i+1, 1<<14, append(plain()[:6], ":path", "/"+strconv.Itoa(int(i))))
	}
	s.ends(t, more)
	_, faults := s.counts()
	if len(faults) != toldAlone || !faults[0].Crowd || faults[0].Path != "/10" || faults[0].Method != "POST" || faults[0].Authority != "a.test" {
		t.Errorf("faults %+v", faults)
	}
	close(hold)
	s.ends(t, streams)
	_ = s.Close()
	called, faults := s.settle(t, streams+more)
	if n := told(faults, func(f Fault) bool { return f.Crowd }); called != streams || n != more || len(faults) > 2*toldAlone {
		t.Errorf("%d taken, %d too many, faults %+v", called, n, faults)
	}
}

// TestEveryRequestIsToldOnce: whatever is cancelled when, as many requests
// are taken or told as were sent.
func TestEveryRequestIsToldOnce(t *testing.T) {
	for _, cancel := range []string{"none", "at once", "late"} {
		t.Run(cancel, func(t *testing.T) {
			const sent = 120
			hold := make(chan struct{})
			s := serveHeld(t, hold, 20)
			for i := range uint32(sent) {
				s.ask(2*i+1, 1<<14, plain()) // all alike
				if cancel == "at once" && i%2 == 0 {
					_ = s.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel) // the end of the connection shows elsewhere
				}
			}
			if cancel == "late" {
				for i := range uint32(sent) {
					_ = s.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel) // likewise
				}
			}
			_ = s.CloseWrite()
			s.answered(1 << 20) // until the server has closed
			close(hold)
			called, faults := s.settle(t, sent)
			time.Sleep(50 * time.Millisecond) // for what would be too much
			called, faults = s.counts()
			if n := told(faults, func(Fault) bool { return true }); called+n != sent {
				t.Errorf("%d taken and %d told of %d: %+v", called, n, sent, faults)
			}
		})
	}
}

// TestGone: requests that were cancelled before they were taken are told
// together, and what is kept of them is bounded.
func TestGone(t *testing.T) {
	var faults []Fault
	g := New(1<<14, func(f Fault) error { faults = append(faults, f); return nil })
	var b, block bytes.Buffer
	enc, fr := hpack.NewEncoder(&block), http2.NewFramer(&b, nil)
	now := time.Unix(0, 0)
	g.now = func() time.Time { now = now.Add(resetTime / maxResets * 2); return now }
	const sent = 5000
	for i := range uint32(sent) {
		block.Reset()
		for p := range slices.Chunk(plain(), 2) {
			_ = enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]}) // to memory
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}) // likewise
		_ = fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel)                                                                                // likewise
		if err := g.Take(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if len(g.waiting) > maxGone {
			t.Fatalf("%d are kept", len(g.waiting))
		}
	}
	if err := g.End(); err != nil {
		t.Fatal(err)
	}
	if n := told(faults, func(f Fault) bool { return f.Lost }); n != sent || g.Taken("POST", "a.test", "/") {
		t.Errorf("%d told of %d", n, sent)
	}
}
