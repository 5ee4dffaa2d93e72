package http2guard

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// reads is what a server makes of what it gets: the fields of sound heads, and
// "reset" for others.
func (s *script) reads() (heads []string, err error) {
	f := http2.NewFramer(io.Discard, bytes.NewReader(s.got))
	f.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	for {
		frame, err := f.ReadFrame()
		var reset http2.StreamError
		switch {
		case errors.Is(err, io.EOF):
			return heads, nil
		case errors.As(err, &reset):
			heads = append(heads, "reset")
			continue
		case err != nil:
			return heads, err
		}
		if m, ok := frame.(*http2.MetaHeadersFrame); ok {
			var b strings.Builder
			for _, field := range m.Fields {
				b.WriteString(field.Name + "=" + field.Value + " ")
			}
			heads = append(heads, b.String())
		}
	}
}

// TestStrayTrailers: trailers on a stream that the server has reset reach it as
// what it only resets again, and later heads are read as they were meant. All
// else is passed as it came.
func TestStrayTrailers(t *testing.T) {
	const request = ":method=POST :scheme=https :authority=a.test :path=/ "
	const once = "a request head on a stream that has ended"
	const silent = "-" // the connection ends, and the request is on record already
	trailers := func(s *script) { s.head(1, true, "x-sum", "1") }
	for name, tt := range map[string]struct {
		late   func(*script)
		heads  []string // between the first and the last
		detail string   // of the only fault, which ends the connection; "": none
	}{
		"trailers":         {trailers, []string{"reset"}, ""},
		"behind a body":    {func(s *script) { _ = s.framer.WriteData(1, false, []byte("abc")); trailers(s) }, []string{"reset"}, ""},
		"none, but an end": {func(s *script) { s.head(1, true) }, []string{"reset"}, ""},
		"padded": {func(s *script) {
			b := s.fields("x-sum", "1")
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b, EndHeaders: true, EndStream: true, PadLength: 9})
		}, []string{"reset"}, ""},
		"in pieces": {func(s *script) {
			b := s.fields("x-sum", "1")
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:2], EndStream: true})
			_ = s.framer.WriteContinuation(1, false, nil)
			_ = s.framer.WriteContinuation(1, true, b[2:])
		}, []string{"reset"}, ""},
		"of a table that grows smaller": {func(s *script) {
			s.enc.SetMaxDynamicTableSize(0)
			s.enc.SetMaxDynamicTableSize(tableSize)
			trailers(s)
		}, []string{"reset"}, ""},
		"trailers twice":               {func(s *script) { trailers(s); trailers(s) }, nil, once},
		"trailers after the end":       {func(s *script) { _ = s.framer.WriteData(1, true, nil); trailers(s) }, nil, once},
		"trailers without an end":      {func(s *script) { s.head(1, false, "x-sum", "1") }, nil, silent},
		"a request":                    {func(s *script) { s.head(1, true, plain()...) }, nil, once},
		"of pseudo-headers":            {func(s *script) { s.head(1, true, ":path", "/x") }, nil, silent},
		"malformed":                    {func(s *script) { s.head(1, true, "X", "1") }, nil, silent},
		"too large":                    {func(s *script) { s.head(1, true, "x", strings.Repeat("v", headLimit-1)) }, nil, silent},
		"behind a reset by the client": {func(s *script) { _ = s.framer.WriteRSTStream(1, http2.ErrCodeCancel); trailers(s) }, nil, once},
	} {
		for _, piece := range []int{0, 1, 2, 7, 10} {
			t.Run(name, func(t *testing.T) {
				s := newScript(t)
				s.piece = piece
				s.head(1, false, plain()...)
				err := s.comes()
				s.answers(1)
				s.resets(1, http2.ErrCodeNo)
				tt.late(s)
				s.head(3, true, plain("x-sum", "1")...)
				err = errors.Join(err, s.comes())
				if tt.detail == silent {
					if err == nil || len(s.faults) != 0 {
						t.Errorf("in pieces of %d: %v, faults %+v", piece, err, s.faults)
					}
					return
				}
				if tt.detail != "" {
					if err == nil || len(s.faults) != 1 || s.faults[0].Detail != tt.detail {
						t.Errorf("in pieces of %d: %v, faults %+v", piece, err, s.faults)
					}
					return
				}
				heads, rerr := s.reads()
				want := slices.Concat([]string{request}, tt.heads, []string{request + "x-sum=1 "})
				if err = errors.Join(err, rerr); err != nil || len(s.faults) != 0 || !slices.Equal(heads, want) {
					t.Errorf("in pieces of %d: %v, faults %+v, heads %q", piece, err, s.faults, heads)
				}
			})
		}
	}
}

// TestTakeChangesNothingElse: without a reset, the server gets what came.
func TestTakeChangesNothingElse(t *testing.T) {
	for _, piece := range []int{0, 1, 2, 7, 9, 10} {
		s := newScript(t)
		s.piece = piece
		s.head(1, false, plain()...)
		_ = s.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15}) // to memory
		_ = s.framer.WriteData(1, false, bytes.Repeat([]byte("x"), 999))                       // likewise
		s.head(1, true, "x-sum", "1")
		want := bytes.Clone(s.out.Bytes())
		if err := s.comes(); err != nil || !bytes.Equal(s.got, want) {
			t.Errorf("in pieces of %d: %v, %d bytes of %d", piece, err, len(s.got), len(want))
		}
	}
}

// TestLateTrailersEndNothing: a client that hears late of a refusal loses the
// stream, and no other, and is told of once.
func TestLateTrailersEndNothing(t *testing.T) {
	s := serve(t)
	s.write(1, false, 1<<14, plain(unread, "1"))
	s.ends(t, 2) // the answer's end, and the reset
	for range 3 {
		_ = s.framer.WriteData(1, false, []byte("abc")) // what is wrong shows below
	}
	s.ask(1, 1<<14, []string{"x-sum", "1"})
	s.ask(3, 1<<14, plain("x-sum", "1"))
	s.answered(3)
	if called, faults := s.counts(); called != 1 || len(faults) != 0 {
		t.Errorf("%d handled, faults %+v", called, faults)
	}
	if _, err := s.Write(nil); err != nil {
		t.Error(err)
	}
}

// FuzzStray: whatever comes on streams that the server has reset, and in
// whatever pieces, none of it reaches the server as a sound head.
func FuzzStray(f *testing.F) {
	f.Add([]byte("\x00\x00\x05\x01\x05\x00\x00\x00\x01\x40\x01a\x01b\x00\x00\x05\x01\x05\x00\x00\x00\x05\x82\x87\x84\x01\x00"))
	f.Add([]byte("\x00\x00\x03\x01\x01\x00\x00\x00\x03\x40\x01a\x00\x00\x02\x09\x04\x00\x00\x00\x03\x01b"))
	f.Add([]byte("\x00\x00\x0a\x01\x2d\x00\x00\x00\x01\x02\x00\x00\x00\x00\x00\x20\xbe\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[int][]byte{}
		for _, piece := range []int{3, max(len(b), 1)} {
			g := New(1<<10, func(Fault) error { return nil })
			g.last, g.cut = 3, []uint32{1, 3}
			for p := range slices.Chunk(bytes.Clone(b), piece) {
				out, err := g.Take(p)
				if err != nil {
					return
				}
				got[piece] = append(got[piece], out...)
			}
			r := http2.NewFramer(io.Discard, bytes.NewReader(got[piece]))
			r.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
			for {
				frame, err := r.ReadFrame()
				if m, ok := frame.(*http2.MetaHeadersFrame); ok && err == nil && m.StreamID <= 3 {
					t.Fatalf("in pieces of %d: a head on stream %d", piece, m.StreamID)
				}
				var reset http2.StreamError
				if err != nil && !errors.As(err, &reset) {
					break
				}
			}
		}
		if !bytes.Equal(got[3], got[max(len(b), 1)]) {
			t.Fatalf("%q in pieces, %q at once", got[3], got[max(len(b), 1)])
		}
	})
}
