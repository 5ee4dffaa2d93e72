package http2guard

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// script is a Guard whose both sides a test writes.
type script struct {
	*Guard
	t      *testing.T
	out    bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
	faults []Fault
	got    []byte // by the server
	piece  int    // bytes that come at once; 0: all
}

func newScript(t *testing.T) *script {
	s := &script{t: t}
	s.Guard = New(headLimit, func(f Fault) error { s.faults = append(s.faults, f); return nil })
	s.framer, s.enc = http2.NewFramer(&s.out, nil), hpack.NewEncoder(&s.block)
	return s
}

// comes takes what the client has written, and says what that ends with.
func (s *script) comes() error {
	b := bytes.Clone(s.out.Bytes())
	s.out.Reset()
	for p := range slices.Chunk(b, max(s.piece, 1)) {
		if s.piece == 0 {
			p = b
		}
		out, err := s.Take(p)
		s.got = append(s.got, out...)
		if err != nil || s.piece == 0 {
			return err
		}
	}
	return nil
}

// fields encodes what a head says.
func (s *script) fields(pairs ...string) []byte {
	s.block.Reset()
	for p := range slices.Chunk(pairs, 2) {
		_ = s.enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]}) // to memory
	}
	return s.block.Bytes()
}

// head writes the head of a request, or trailers.
func (s *script) head(id uint32, end bool, pairs ...string) {
	b := s.fields(pairs...)
	_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndHeaders: true, EndStream: end}) // to memory
}

// sends lets the server send what write writes.
func (s *script) sends(write func(*http2.Framer) error) {
	s.t.Helper()
	var b bytes.Buffer
	_ = write(http2.NewFramer(&b, nil)) // to memory
	if err := s.Sent(b.Bytes()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) resets(id uint32, code http2.ErrCode) {
	s.sends(func(f *http2.Framer) error { return f.WriteRSTStream(id, code) })
}

func (s *script) answers(id uint32) {
	s.sends(func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
	})
}

// takes calls Taken as the handler of a stream that lives, or has ended.
func (s *script) takes(live, want bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	if !live {
		cancel()
	}
	if s.Taken(ctx, "POST", "a.test", "/") != want {
		s.t.Errorf("a handler whose stream lives (%v) is told %v", live, !want)
	}
}

// window is a frame for which the server resets the stream.
func (s *script) window(id uint32) {
	_ = s.framer.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4)) // to memory
	if err := s.comes(); err != nil {
		s.t.Fatal(err)
	}
}

// TestAlike: of uploads that are alike, the handlers come in any order. None
// whose stream lives is stopped, and none is told for what befell another.
func TestAlike(t *testing.T) {
	const live, ended = true, false
	for name, tt := range map[string]struct {
		do     func(*script) // after the heads of streams 1 and 3
		detail []string      // of the faults
	}{
		"the second ends first, unread": {func(s *script) {
			s.takes(live, true)
			s.answers(3)
			s.resets(3, http2.ErrCodeNo)
			s.takes(live, true)
			s.answers(1)
			s.resets(1, http2.ErrCodeNo)
		}, nil},
		"a reset alone": {func(s *script) {
			s.takes(live, true)
			s.resets(3, http2.ErrCodeNo)
			s.takes(live, true)
		}, nil},
		"the second ends in a panic": {func(s *script) {
			s.takes(live, true)
			s.resets(3, http2.ErrCodeInternal)
			s.takes(live, true)
		}, nil},
		"its body comes late": {func(s *script) {
			s.takes(live, true)
			s.answers(3)
			s.resets(3, http2.ErrCodeNo)
			s.resets(3, http2.ErrCodeStreamClosed)
			s.takes(live, true)
		}, nil},
		"more comes on one that was answered": {func(s *script) {
			s.takes(live, true)
			s.answers(3)
			s.window(3)
			s.resets(3, http2.ErrCodeProtocol)
			s.takes(live, true)
		}, nil},
		"the first breaks, its handler comes first": {func(s *script) {
			s.window(1)
			s.resets(1, http2.ErrCodeProtocol)
			s.takes(ended, false)
			s.takes(live, true)
		}, []string{"a window update of nothing"}},
		"the first breaks, its handler comes last": {func(s *script) {
			s.window(1)
			s.resets(1, http2.ErrCodeProtocol)
			s.takes(live, true)
			s.takes(ended, false)
		}, []string{"a window update of nothing"}},
		"the second breaks, before that is told": {func(s *script) {
			s.window(3)
			s.takes(ended, true) // the server's reset is under way
			s.resets(3, http2.ErrCodeProtocol)
			s.takes(live, true)
		}, nil},
		"the second breaks while taken for the first": {func(s *script) {
			s.takes(live, true)
			s.resets(3, http2.ErrCodeFlowControl)
			s.takes(live, true)
		}, []string{"a frame of the request breaks the protocol"}},
		"the second is one too many": {func(s *script) {
			s.takes(live, true)
			s.resets(3, http2.ErrCodeRefusedStream)
		}, []string{crowdDetail}},
		"the first is cancelled and gets no handler": {func(s *script) {
			_ = s.framer.WriteRSTStream(1, http2.ErrCodeCancel) // to memory
			_ = s.comes()                                       // no fault ends it
			s.takes(live, true)
			if w := s.waits(1); w == nil || !w.gone {
				s.t.Error("another has taken it")
			}
		}, []string{"the connection ended before the request was taken"}},
		"the first is cancelled and gets one": {func(s *script) {
			_ = s.framer.WriteRSTStream(1, http2.ErrCodeCancel) // to memory
			_ = s.comes()                                       // no fault ends it
			s.takes(ended, true)
			s.takes(live, true)
		}, nil},
		"none is taken": {func(s *script) {
			if err := s.End(); err != nil {
				s.t.Fatal(err)
			}
			s.takes(live, false)
			s.takes(ended, false)
		}, []string{"the connection ended before the request was taken", "the connection ended before the request was taken"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.head(1, false, plain()...)
			s.head(3, false, plain()...)
			if err := s.comes(); err != nil {
				t.Fatal(err)
			}
			tt.do(s)
			if err := s.End(); err != nil {
				t.Fatal(err)
			}
			var told []string
			for _, f := range s.faults {
				told = append(told, f.Detail)
			}
			if !slices.Equal(told, tt.detail) {
				t.Errorf("told %q", told)
			}
		})
	}
}

// TestDebtsAreBounded: what is kept of requests that were told is bounded.
func TestDebtsAreBounded(t *testing.T) {
	s := newScript(t)
	for i := range uint32(3 * max(maxDebts, maxCut)) {
		id := 2*i + 1
		s.head(id, false, plain()...)
		if err := s.comes(); err != nil {
			t.Fatal(err)
		}
		s.resets(id, http2.ErrCodeRefusedStream)
		s.Guard.resets = 0 // it is no flood
		if len(s.debts) > maxDebts || len(s.cut) > maxCut || len(s.sending) > 0 {
			t.Fatalf("%d debts, %d streams that were cut, %d that send", len(s.debts), len(s.cut), len(s.sending))
		}
	}
}

// TestAlikeAtOnce: of many uploads that are alike, those that are not taken in
// stop none that is.
func TestAlikeAtOnce(t *testing.T) {
	const rounds, streams = 20, 60
	var wg sync.WaitGroup
	for range rounds {
		s := serve(t)
		var handled int
		for i := range uint32(streams) {
			id := 2*i + 1
			if i%2 == 0 {
				s.write(id, false, 1<<14, plain(unread, "1"))
				continue
			}
			handled++
			s.write(id, false, 1<<14, plain())
			_ = s.framer.WriteData(id, true, []byte("abc")) // what is wrong shows below
		}
		wg.Go(func() {
			defer s.Close()
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if called, _ := s.counts(); called == handled {
					break
				}
			}
			if called, faults := s.counts(); called != handled || len(faults) > 0 {
				t.Errorf("%d handled of %d, faults %+v", called, handled, faults)
			}
		})
	}
	wg.Wait()
}

// TestAlikeOverTheBound: of uploads that are alike and too many at once, those
// that the server takes up are not stopped, and each is accounted for.
func TestAlikeOverTheBound(t *testing.T) {
	const rounds, sent = 20, 100
	for range rounds {
		s := serveHeld(t, nil, 5)
		go func() {
			for i := range uint32(sent) {
				s.ask(2*i+1, 1<<14, plain())
			}
		}()
		over := map[http2.ErrCode]int{}
		answered := 0
		for n := 0; n < sent; {
			f, err := s.framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.(type) {
			case *http2.HeadersFrame:
				answered, n = answered+1, n+1
			case *http2.RSTStreamFrame:
				over[f.ErrCode]++
				n++
			}
		}
		_ = s.Close()
		called, faults := s.settle(t, sent)
		if n := told(faults, func(Fault) bool { return true }); called != answered || called+n != sent || over[http2.ErrCodeInternal] > 0 {
			t.Errorf("%d called, %d answered, %d told, reset for %v", called, answered, n, over)
		}
	}
}

// TestToldBeforeItsContextEnds: the server ends the context of a request that it
// resets only after the reset is written. Its handler waits for that, and takes
// no entry of another.
func TestToldBeforeItsContextEnds(t *testing.T) {
	for name, alike := range map[string]bool{"alone": false, "beside one that is alike": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // by its clock a millisecond is less than what the handler waits
				s := newScript(t)
				s.head(1, false, plain("content-length", "3")...)
				_ = s.framer.WriteData(1, true, []byte("hello")) // to memory
				if alike {
					s.head(3, true, plain()...)
				}
				if err := s.comes(); err != nil {
					t.Fatal(err)
				}
				s.resets(1, http2.ErrCodeProtocol)
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(time.Millisecond, cancel).Stop()
				if s.Taken(ctx, "POST", "a.test", "/") {
					t.Error("a request that was told is taken")
				}
				if alike {
					s.takes(true, true)
				}
				if len(s.faults) != 1 {
					t.Errorf("faults %+v", s.faults)
				}
			})
		})
	}
}
