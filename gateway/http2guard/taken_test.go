package http2guard

import (
	"bytes"
	"errors"
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
	alone := slices.DeleteFunc(faults, func(f Fault) bool { return f.Count > 0 }) // others are told at intervals
	if len(alone) != toldAlone || !faults[0].Crowd || faults[0].Path != "/10" || faults[0].Method != "POST" || faults[0].Authority != "a.test" {
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

// TestResetsAreToldApart: a stream that the server resets for what the client
// does on it is not told as one too many.
func TestResetsAreToldApart(t *testing.T) {
	const id = 3
	for name, tt := range map[string]struct {
		fields []string
		dep    uint32
		then   func(*served) error
	}{
		"body over its length": {[]string{"content-length", "2"}, 0, func(s *served) error { return s.framer.WriteData(id, true, []byte("abcdef")) }},
		"pseudo-header in the trailers": {nil, 0, func(s *served) error {
			return s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x84}, EndHeaders: true, EndStream: true})
		}},
		"trailers without an end": {nil, 0, func(s *served) error {
			return s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("\x00\x01a\x01b"), EndHeaders: true})
		}},
		"a window of nothing":  {nil, 0, func(s *served) error { return s.framer.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4)) }},
		"a window of too much": {nil, 0, func(s *served) error { return s.framer.WriteWindowUpdate(id, 1<<31-1) }},
		"priority of itself": {nil, 0, func(s *served) error {
			return s.framer.WriteRawFrame(http2.FramePriority, 0, id, []byte{0, 0, 0, id, 1})
		}},
		"depends on itself": {nil, id, func(*served) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			s := serveHeld(t, hold, 1)
			s.ask(1, 1<<14, plain())
			for end := time.Now().Add(20 * time.Second); s.awaits() && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			// Its handler still runs, so the next one's does not begin.
			err := s.framer.WriteRSTStream(1, http2.ErrCodeCancel)
			s.block.Reset()
			for p := range slices.Chunk(plain(tt.fields...), 2) {
				_ = s.enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]}) // to memory
			}
			err = errors.Join(err, s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.block.Bytes(), EndHeaders: true,
				Priority: http2.PriorityParam{StreamDep: tt.dep}}), tt.then(s))
			if err != nil {
				t.Fatal(err)
			}
			s.answered(id)
			_, faults := s.counts()
			if len(faults) != 1 || faults[0].Crowd || !faults[0].Lost || faults[0].Detail == "" || faults[0].Method != "POST" {
				t.Errorf("faults %+v", faults)
			}
			close(hold)
		})
	}
}

// awaits says whether a request has come that no handler has taken, or none.
func (s *served) awaits() bool {
	s.mu.Lock()
	g := s.guard
	s.mu.Unlock()
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last == 0 || len(g.waiting) > 0
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
		if _, err := g.Take(b.Bytes()); err != nil {
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
	if n := told(faults, func(f Fault) bool { return f.Lost }); n != sent || g.Taken(t.Context(), "POST", "a.test", "/") {
		t.Errorf("%d told of %d", n, sent)
	}
}

// TestResetsOfWhatIsReset: a client that resets what the server has reset
// cancels nothing.
func TestResetsOfWhatIsReset(t *testing.T) {
	s := newScript(t)
	for i := range uint32(3 * maxResets) {
		s.head(2*i+1, false, plain()...)
		err := s.comes()
		s.takes(true, true)
		s.answers(2*i + 1)
		s.resets(2*i+1, http2.ErrCodeNo)
		_ = s.framer.WriteRSTStream(2*i+1, http2.ErrCodeNo) // to memory
		if err = errors.Join(err, s.comes()); err != nil {
			t.Fatal(i, err)
		}
	}
	if len(s.faults) > 0 {
		t.Errorf("faults %+v", s.faults)
	}
}
