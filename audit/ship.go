package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Carrier takes records to another place. Carry returns nil when the receiver
// has accepted them all; until then they are carried again. An error that is
// Permanent says that the receiver does not take these records together, a
// *RejectedError that it has taken the others.
type Carrier interface {
	Carry(ctx context.Context, events []*Event) error
}

// RejectedError is an answer of a receiver that has taken some records of a
// batch for good, and rejected some for good.
type RejectedError struct {
	Records int
	Reply   string // why, escaped
}

// Error says how many, and why.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("the receiver rejected %d of the records: %s", e.Records, e.Reply)
}

// ShipperOptions of NewShipper. Name, Dir, Carrier, State and Log are required;
// a zero limit is its default.
type ShipperOptions struct {
	Name    string // of the place in the log that is remembered
	Dir     string // of the log
	Carrier Carrier
	State   *State
	Log     Writer       // gets an event of kind audit when shipping fails
	Logger  hclog.Logger // nil is silence
	Count   func(result string, n int)

	Batch      int           // records at once; 512
	Interval   time.Duration // how long a record waits for others; 1 s
	Timeout    time.Duration // of one attempt; 30 s
	RetryFirst time.Duration // before the second attempt; 1 s, then twice as long each time
	RetryMost  time.Duration // 1 min
}

// Shipper carries every record of a log to a receiver, in order, each at least
// once. It reads the segments and remembers how far, so that what was written
// while it did not run is carried after it. It begins with the oldest record.
type Shipper struct {
	o      ShipperOptions
	cursor *cursor
	seq    uint64 // of the last record that was read; 0 if not known
	from   uint64 // the segment that it was in
	batch  []*Event
	size   int
	lost   int // records that were given up and not told of yet
	told   time.Time
}

// lostEvery bounds how often records that are given up are told of: what tells
// is a record too, and may be given up as well.
const lostEvery = time.Minute

// shipBucket holds, by name, how far a log was shipped: segment, offset and, but
// for what older versions have left, the seq of the last record.
const shipBucket = "ship_place"

// shipBytes bounds a batch, in bytes of the log.
const shipBytes = 1 << 20

// NewShipper returns a Shipper. Run begins to ship.
func NewShipper(o ShipperOptions) (*Shipper, error) {
	if o.Name == "" || o.Dir == "" || o.Carrier == nil || o.State == nil || o.Log == nil {
		return nil, errors.New("shipper: name, folder, carrier, state and log are required")
	}
	if o.Batch <= 0 {
		o.Batch = 512
	}
	setDefault(&o.Interval, time.Second)
	setDefault(&o.Timeout, 30*time.Second)
	setDefault(&o.RetryFirst, time.Second)
	setDefault(&o.RetryMost, time.Minute)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Count == nil {
		o.Count = func(string, int) {}
	}
	v, err := o.State.Get(shipBucket, []byte(o.Name))
	if err != nil {
		return nil, err
	}
	var at place
	var seq uint64
	if len(v) == 16 || len(v) == 24 {
		at = place{n: binary.BigEndian.Uint64(v), off: int64(binary.BigEndian.Uint64(v[8:]))}
	}
	if len(v) == 24 {
		seq = binary.BigEndian.Uint64(v[16:])
	}
	return &Shipper{o: o, cursor: newCursor(o.Dir, at), seq: seq, from: at.n}, nil
}

// Run ships until ctx ends. What is not accepted by then is shipped after the
// next start.
func (s *Shipper) Run(ctx context.Context) error {
	defer s.cursor.close()
	tick := time.NewTicker(s.o.Interval)
	defer tick.Stop()
	for {
		for s.fill() {
			if !s.ship(ctx) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if len(s.batch) > 0 && !s.ship(ctx) {
				return nil
			}
		}
	}
}

// fill reads on and reports whether the batch is full.
func (s *Shipper) fill() bool {
	for len(s.batch) < s.o.Batch && s.size < shipBytes {
		line, err := s.cursor.next()
		switch {
		case errors.Is(err, io.EOF):
			return false
		case isLineError(err):
			s.o.Logger.Warn("line is not shipped", "error", err)
			continue
		case err != nil:
			s.o.Logger.Warn("log cannot be read for shipping", "error", err)
			return false
		}
		e, err := DecodeLine(line)
		if err != nil {
			s.o.Logger.Warn("line is not shipped", "segment", segmentName(s.cursor.at.n), "error", err)
			continue
		}
		s.follows(e.Seq, s.cursor.at.n)
		s.batch = append(s.batch, e)
		s.size += len(line)
	}
	return true
}

// ship carries the batch and remembers that, and reports false if ctx has ended
// before it could.
func (s *Shipper) ship(ctx context.Context) bool {
	if !s.carry(ctx, s.batch) {
		return false
	}
	s.batch, s.size = nil, 0
	at := s.cursor.at
	if err := s.o.State.Put(shipBucket, []byte(s.o.Name), slices.Concat(key(at.n), key(uint64(at.off)), key(s.seq))); err != nil {
		s.o.Logger.Warn("place in the log not saved; records will be shipped again", "error", err)
	}
	return true
}

// carry carries events until they are accepted. Of a batch that the receiver
// does not take, the records that it does not take by themselves are given up.
func (s *Shipper) carry(ctx context.Context, events []*Event) bool {
	wait := s.o.RetryFirst
	for failing := false; ; {
		err := s.attempt(ctx, events)
		var rejected *RejectedError
		switch {
		case err == nil:
			s.o.Count("sent", len(events))
			return true
		case errors.As(err, &rejected):
			s.o.Count("sent", max(len(events)-rejected.Records, 0))
			s.giveUp(rejected.Records, err)
			return true
		case ctx.Err() != nil:
			return false
		case IsPermanent(err) && len(events) > 1:
			half := len(events) / 2
			return s.carry(ctx, events[:half]) && s.carry(ctx, events[half:])
		case IsPermanent(err):
			s.giveUp(1, err)
			return true
		}
		s.o.Count("failed", len(events))
		if !failing {
			failing = true
			s.tell(ActionUnshipped, Medium, fmt.Sprintf("records are not taken, and wait: %v", err), 0)
		}
		// Half of the wait is by chance, so that many gateways do not come at once.
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		}
		wait = min(2*wait, s.o.RetryMost)
	}
}

func (s *Shipper) attempt(ctx context.Context, events []*Event) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil { // a carrier is no reason for the gateway to die
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return s.o.Carrier.Carry(ctx, events)
}

// giveUp counts records that the receiver does not take.
func (s *Shipper) giveUp(n int, why error) {
	s.o.Count("dropped", n)
	s.lost += n
	if now := time.Now(); now.Sub(s.told) >= lostEvery {
		s.tell(ActionUnshippable, High, fmt.Sprintf("%s not taken: %v", several(s.lost, "record"), why), 0)
		s.lost, s.told = 0, now
	}
}

// follows notes what is missing between the record before and the record seq of
// the segment n.
func (s *Shipper) follows(seq, n uint64) {
	before, from := s.seq, s.from
	s.seq, s.from = seq, n
	gone := int(max(n, from+1) - from - 1)
	switch {
	case before == 0 && from > 0 && gone > 0:
		s.tell(ActionUnshippable, Critical, fmt.Sprintf("segments after %s and before %s are gone, and were not shipped", segmentName(from), segmentName(n)), gone)
	case before == 0 || seq <= before+1:
	case n == from:
		s.giveUp(int(seq-before-1), errors.New("the log has other lines in their place"))
	default:
		s.o.Count("dropped", int(seq-before-1))
		s.tell(ActionUnshippable, Critical, fmt.Sprintf("records %d to %d are gone from the log, and were not shipped", before+1, seq-1), gone)
	}
}

// tell records what goes wrong.
func (s *Shipper) tell(action string, severity Severity, message string, segments int) {
	s.o.Logger.Warn("shipping", "to", s.o.Name, "problem", message)
	err := s.o.Log.Write(&Event{Kind: KindAudit, Phase: PhaseEvent, Severity: severity,
		Message: "shipping to " + Escape(s.o.Name, 64) + ": " + message, Note: &Note{Action: action, Segments: segments}})
	if err != nil {
		s.o.Logger.Error("problem of shipping not recorded", "error", err)
	}
}
