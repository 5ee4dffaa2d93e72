package http2guard

import (
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestHeadOnAnEndedStream: a head for a stream that has been used, or that a
// later one has closed, is a fault once. Trailers are none.
func TestHeadOnAnEndedStream(t *testing.T) {
	head := func(id uint32, fields ...string) func(*served) {
		return func(s *served) { s.ask(id, 1<<14, fields) }
	}
	begun := func(id uint32) func(*served) {
		return func(s *served) {
			s.write(id, false, 1<<14, plain())
		}
	}
	data := func(id uint32, end bool) func(*served) {
		return func(s *served) { _ = s.framer.WriteData(id, end, []byte("abc")) } // the end of the connection shows elsewhere
	}
	cancel := func(id uint32) func(*served) {
		return func(s *served) { _ = s.framer.WriteRSTStream(id, http2.ErrCodeCancel) } // likewise
	}
	taken := func(s *served) {
		for end := time.Now().Add(20 * time.Second); s.awaits() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	answered := func(id uint32) func(*served) { return func(s *served) { s.answered(id) } }
	for name, tt := range map[string]struct {
		steps  []func(*served)
		called int
		fault  *Fault // what is held of it: Lost and Method
	}{
		"a request on an answered stream":  {[]func(*served){head(1, plain()...), answered(1), head(1, plain()...)}, 1, &Fault{Method: "POST"}},
		"a request twice and on":           {[]func(*served){head(1, plain()...), answered(1), head(1, plain()...), head(1, plain()...), head(3, plain()...)}, 1, &Fault{Method: "POST"}},
		"a request behind a body":          {[]func(*served){begun(1), data(1, false), data(1, true), answered(1), head(1, plain()...)}, 1, &Fault{Method: "POST"}},
		"a request on a cancelled stream":  {[]func(*served){begun(1), taken, cancel(1), head(1, plain()...)}, 1, &Fault{Method: "POST"}},
		"a request on a stream left out":   {[]func(*served){head(5, plain()...), answered(5), head(3, plain()...)}, 1, &Fault{Method: "POST"}},
		"trailers on an answered stream":   {[]func(*served){head(1, plain()...), answered(1), head(1, "x-a", "1")}, 1, &Fault{Lost: true}},
		"trailers twice":                   {[]func(*served){begun(1), data(1, false), head(1, "x-a", "1"), answered(1), head(1, "x-a", "1")}, 1, &Fault{Lost: true}},
		"trailers":                         {[]func(*served){begun(1), data(1, false), head(1, "x-a", "1"), answered(1), head(3, plain()...), answered(3)}, 2, nil},
		"trailers of the first of several": {[]func(*served){begun(1), begun(3), data(3, true), answered(3), data(1, false), head(1, "x-a", "1"), answered(1)}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			for _, step := range tt.steps {
				step(s)
			}
			_ = s.CloseWrite()
			s.answered(99) // until the server has closed
			want := tt.called
			if tt.fault != nil {
				want++
			}
			called, faults := s.settle(t, want)
			switch {
			case called != tt.called || (tt.fault == nil) != (len(faults) == 0) || len(faults) > 1:
				t.Errorf("%d handled, faults %+v", called, faults)
			case tt.fault != nil && (faults[0].Lost != tt.fault.Lost || faults[0].Method != tt.fault.Method || faults[0].Crowd || faults[0].Flood):
				t.Errorf("fault %+v", faults[0])
			}
		})
	}
}
