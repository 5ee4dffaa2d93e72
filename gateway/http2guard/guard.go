// Package http2guard watches an HTTP/2 connection inside TLS for requests that
// net/http refuses before it calls a handler (RFC 9113, section 8.1.1), for
// those that never get a handler, and for floods, so that they can be recorded
// like any other attempt. It changes no byte but for trailers that come after
// the server has reset their stream, for which that would close the connection.
package http2guard

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

// Fault is a request that never reaches a handler, or a flood.
type Fault struct {
	TooLarge bool   // the head is over the limit
	Flood    bool   // no single request
	Crowd    bool   // one too many at once
	Lost     bool   // it, or its connection, ended first
	Count    uint64 // requests that are told together, from First to Last; 0 is one
	First    time.Time
	Last     time.Time
	Detail   string // what is wrong, without bytes of the request

	// Of the request, as far as they are legal.
	Method, Authority, Path string
}

// Frame types, flags and sizes (RFC 9113, sections 4.1 and 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameReset        = 0x3
	frameWindow       = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	headSize  = 9    // of a frame, in bytes
	tableSize = 4096 // of the HPACK table that net/http announces, in bytes
)

// maxPieces is in how many frames a head may come.
const maxPieces = 256

// A client that cancels more streams than this within resetTime is a flood
// (CVE-2023-44487).
const (
	maxResets = 500
	resetTime = 10 * time.Second
)

// ErrFlood ends a connection.
var ErrFlood = errors.New("http2: flood")

// Guard goes along with the bytes of one connection.
type Guard struct {
	limit  int // of a decoded head, in bytes, as the server counts it
	report func(Fault) error
	now    func() time.Time

	mu sync.Mutex

	head  []byte // of the frame that begins
	left  int    // of the payload of the frame under way, in bytes
	size  int    // of all of that
	kind  byte
	flags byte
	id    uint32 // stream of the frame under way

	payload []byte   // of the frame under way, if it is a piece of a head or says a number
	ends    bool     // the head under way ends its stream
	itself  bool     // and depends on that
	block   []byte   // of the head under way
	pieces  int      // frames of the head under way
	open    uint32   // stream whose head is under way; 0: none
	last    uint32   // newest stream
	sending []uint32 // streams on which the client may still send
	cut     []uint32 // and those that the server has reset since
	stray   bool     // the head under way is on one of these
	rest    []byte   // what the server is to get and has not read
	fields  *hpack.Decoder

	resets int
	since  time.Time // the first of resets

	seed    maphash.Seed
	waiting []awaited // requests that no handler has taken yet
	debts   []debt    // requests that are told, though their handler may yet come
	crowd   crowd
	out     outgoing
	late    lateness
}

// New returns a Guard. Limit is the server's for a decoded head, in bytes;
// report is called for each fault, and what it returns ends the connection.
func New(limit int, report func(Fault) error) *Guard {
	return &Guard{limit: limit, report: report, now: time.Now, seed: maphash.MakeSeed(), fields: hpack.NewDecoder(tableSize, nil)}
}

// Take looks at what follows the preface, piece by piece, and returns what the
// server is to get of that. It may change b, and what it returns is good until
// b is used again. Its error ends the connection.
func (g *Guard) Take(b []byte) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.late.over {
		return nil, errLate
	}
	defer g.watch()
	out := passed{in: b}
	for len(b) > 0 {
		if len(g.head) < headSize {
			n := min(headSize-len(g.head), len(b))
			g.head, b = append(g.head, b[:n]...), b[n:]
			out.seen += n
			if len(g.head) < headSize {
				break // kept until it is whole
			}
			if err := g.begin(); err != nil {
				return nil, err
			}
			out.add(g.head[:4]...)
			out.add(g.passedFlags())
			out.add(g.head[5:]...)
		} else {
			n := min(g.left, len(b))
			if g.piece() || g.number() {
				g.payload = append(g.payload, b[:n]...)
			}
			out.seen += n
			out.add(b[:n]...)
			g.left, b = g.left-n, b[n:]
		}
		if g.left == 0 {
			g.head = g.head[:0]
			if err := g.end(); err != nil {
				return nil, err
			}
			out.add(g.endStray()...)
			g.watch() // what follows has its own time
		}
	}
	return out.bytes, nil
}

// End is called when the connection ends. It may be called at any time.
func (g *Guard) End() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quiet()
	var err error
	if g.open != 0 {
		g.open = 0
		err = g.report(Fault{Lost: true, TooLarge: len(g.block) > g.limit/2, Detail: "the connection ended inside a request head"})
	}
	return errors.Join(err, g.crowdEnds(), g.lose())
}

func (g *Guard) piece() bool { return g.kind == frameHeaders || g.kind == frameContinuation }

// begin reads the head of a frame.
func (g *Guard) begin() error {
	g.left = int(g.head[0])<<16 | int(g.head[1])<<8 | int(g.head[2])
	g.size, g.kind, g.flags = g.left, g.head[3], g.head[4]
	g.id = binary.BigEndian.Uint32(g.head[5:]) &^ (1 << 31)
	g.payload = g.payload[:0]
	if g.open != 0 && (g.kind != frameContinuation || g.id != g.open) {
		return g.broken("another frame inside a request head")
	}
	if g.piece() {
		g.pieces++
	}
	if g.piece() && (len(g.block)+g.left > 2*g.limit || g.pieces > maxPieces) {
		g.open = 0
		return errors.Join(g.report(Fault{TooLarge: true, Detail: "the request head is too large"}), ErrFlood)
	}
	if g.kind == frameHeaders {
		g.stray = g.flags&flagEndStream != 0 && slices.Contains(g.cut, g.id)
	}
	if g.kind == frameReset {
		cut := slices.Contains(g.cut, g.id)
		if g.ended(g.id); cut {
			return nil // it cancels nothing
		}
		return errors.Join(g.cancel(), g.reset())
	}
	return nil
}

// reset counts streams that are cancelled.
func (g *Guard) reset() error {
	if now := g.now(); g.resets == 0 || now.Sub(g.since) > resetTime {
		g.resets, g.since = 0, now
	}
	if g.resets++; g.resets <= maxResets {
		return nil
	}
	return errors.Join(g.report(Fault{Flood: true, Detail: "too many streams are cancelled"}), ErrFlood)
}

// broken reports a head that cannot be read, after which the server closes.
func (g *Guard) broken(detail string) error {
	g.open = 0
	return errors.Join(g.report(Fault{Detail: detail}), errors.New("http2: "+detail))
}

// end takes a frame that is whole.
func (g *Guard) end() error {
	if !g.piece() {
		g.inspect()
		return nil
	}
	b := g.payload
	if g.kind == frameHeaders {
		g.block, g.ends, g.itself = g.block[:0], g.flags&flagEndStream != 0, false
		pad := 0
		if g.flags&flagPadded != 0 && len(b) > 0 {
			pad, b = int(b[0]), b[1:]
		}
		if g.flags&flagPriority != 0 {
			g.itself = len(b) >= 4 && binary.BigEndian.Uint32(b)&^(1<<31) == g.id
			b = b[min(5, len(b)):]
		}
		if pad > len(b) || g.id == 0 {
			return g.broken("malformed HEADERS frame")
		}
		b = b[:len(b)-pad]
	} else if g.open == 0 {
		return nil // the server closes
	}
	g.block, g.open = append(g.block, b...), g.id
	if g.flags&flagEndHeaders == 0 {
		return nil
	}
	g.open, g.pieces = 0, 0
	err := g.judge()
	const small = 4 << 10
	if cap(g.block) > small {
		g.block, g.payload = nil, nil
	}
	g.block = g.block[:0]
	return err
}

// judge decodes a head, and looks at it if it is a request's.
func (g *Guard) judge() error {
	h := request{room: g.limit}
	g.fields.SetEmitEnabled(true)
	g.fields.SetMaxStringLength(g.limit)
	g.fields.SetEmitFunc(func(f hpack.HeaderField) {
		if !h.field(f) {
			g.fields.SetEmitEnabled(false)
		}
	})
	_, err := g.fields.Write(g.block)
	if err = errors.Join(err, g.fields.Close()); err != nil {
		return g.broken("the request head cannot be decoded")
	}
	if g.id <= g.last {
		return g.again(&h)
	}
	g.last = g.id
	if !g.ends {
		g.sending = append(g.sending, g.id)
	}
	if fault := h.fault(); fault != nil {
		return g.report(*fault)
	}
	if h.insecure() {
		// The server would take it for one of this connection's scheme.
		f := h.told("another scheme than the connection's")
		return errors.Join(g.report(f), errors.New("http2: "+f.Detail))
	}
	return g.await(&h)
}
