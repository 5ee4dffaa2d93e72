package audit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// SpoolOptions of NewSpool. Name, Sink, State and Log are required; a zero
// limit is its default.
type SpoolOptions struct {
	Name   string
	Sink   Sink
	State  *State
	Log    Writer       // gets an event of kind audit when delivery fails
	Logger hclog.Logger // nil is silence
	Now    func() time.Time
	Count  func(alert, result string) // of what becomes of a notice: sent, failed (an attempt) or dropped; nil is none

	Limit      int           // notices that wait; more are dropped; 1000
	MaxAge     time.Duration // a notice that waited longer is dropped; 24 h
	Timeout    time.Duration // of one attempt; 30 s
	RetryFirst time.Duration // before the second attempt; 1 s, then twice as long each time
	RetryMost  time.Duration // 5 min
}

// Spool keeps the notices for one sink on disk until the sink has accepted
// them, in order, each at least once. What the disk does not take is kept in
// memory, and put there as soon as it does.
type Spool struct {
	o      SpoolOptions
	bucket string
	wake   chan struct{}

	mu      sync.Mutex
	next    uint64          // key of the next notice on disk
	past    uint64          // notices with a key below are done with, though they may be on disk
	left    [][]byte        // their keys, where they could not be removed
	waiting int             // on disk
	held    []*spooled      // in memory, later than those on disk
	lost    map[string]bool // IDs of alerts of which the sink was told nothing, because it was given up
	owed    owed

	lastErr string // of the delivery that failed last; "" since one was accepted

	sent, failed, dropped atomic.Uint64
}

// NewSpool opens the spool of a sink, with what waits in it.
func NewSpool(o SpoolOptions) (*Spool, error) {
	if o.Name == "" || o.Sink == nil || o.State == nil || o.Log == nil {
		return nil, errors.New("spool: name, sink, state and log are required")
	}
	if o.Limit <= 0 {
		o.Limit = 1000
	}
	setDefault(&o.MaxAge, 24*time.Hour)
	setDefault(&o.Timeout, 30*time.Second)
	setDefault(&o.RetryFirst, time.Second)
	setDefault(&o.RetryMost, 5*time.Minute)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Count == nil {
		o.Count = func(string, string) {}
	}
	s := &Spool{o: o, bucket: "spool/" + o.Name, wake: make(chan struct{}, 1), lost: make(map[string]bool)}
	err := o.State.ForEach(s.bucket, func(k, v []byte) error {
		if len(k) == 8 {
			s.waiting++
			s.next = binary.BigEndian.Uint64(k) + 1
		}
		return nil
	})
	return s, err
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// spooled is a notice as it waits.
type spooled struct {
	Since time.Time `json:"since"`
	Alert Alert     `json:"alert"`

	key []byte // on disk; nil: it is held. Guarded by mu.
}

// Put takes a notice. It is on disk when Put returns, or in memory where the
// disk does not take it, which has an event; the receiver is not waited for. A
// full spool drops it, with an event.
func (s *Spool) Put(a Alert) error {
	s.mu.Lock()
	if n := s.waiting + len(s.held); n >= s.o.Limit {
		s.mu.Unlock()
		err := fmt.Errorf("sink %q: %d notices wait already", s.o.Name, n)
		s.drop(&a, err)
		return err
	}
	first := len(s.held) == 0
	s.held = append(s.held, &spooled{Since: s.o.Now(), Alert: a})
	err := s.unhold()
	s.mu.Unlock()
	if err != nil && first {
		s.event(ActionUndelivered, High, &a, fmt.Errorf("kept in memory, because it cannot be spooled: %w", err))
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Waiting is how many notices have not been accepted.
func (s *Spool) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting + len(s.held)
}

// Counts are the notices accepted and given up, and the attempts that failed.
func (s *Spool) Counts() (sent, dropped, failed uint64) {
	return s.sent.Load(), s.dropped.Load(), s.failed.Load()
}

// LastError is why the last delivery failed, "" if it was accepted.
func (s *Spool) LastError() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}

// ended notes how a delivery ended.
func (s *Spool) ended(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = ""
	if err != nil {
		s.lastErr = err.Error()
	}
}

// Run delivers until ctx ends. What is not accepted by then waits for the next
// start; what the disk does not take even then is given up.
func (s *Spool) Run(ctx context.Context) error {
	defer s.giveUpHeld()
	wait := s.o.RetryFirst
	failing := false
	for {
		s.settle()
		item, err := s.oldest()
		if err != nil {
			return fmt.Errorf("sink %q: %w", s.o.Name, err)
		}
		if item == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-s.wake:
			case <-s.unsettled():
			}
			continue
		}
		if s.untold(&item.Alert) {
			s.drop(&item.Alert, errors.New("the sink was not told that it began, because that notice was given up"))
			s.told(&item.Alert)
			s.finish(item)
			continue
		}
		err = s.deliver(ctx, item)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		s.ended(err)
		switch {
		case err == nil:
			s.sent.Add(1)
			s.o.Count(item.Alert.Name, "sent")
			s.told(&item.Alert)
			s.finish(item)
			failing, wait = false, s.o.RetryFirst
			continue
		case IsPermanent(err), s.o.Now().Sub(item.Since) > s.o.MaxAge:
			s.drop(&item.Alert, err)
			s.finish(item)
			continue
		}
		s.failed.Add(1)
		s.o.Count(item.Alert.Name, "failed")
		if !failing {
			failing = true
			s.event(ActionUndelivered, High, &item.Alert, err)
		}
		// Half of the wait is by chance, so that many gateways do not come at once.
		if !s.rest(ctx, wait/2+rand.N(wait/2+1)) {
			return nil
		}
		wait = min(2*wait, s.o.RetryMost)
	}
}

// oldest returns the notice that waits longest, nil if none does. One that
// cannot be read is removed.
func (s *Spool) oldest() (*spooled, error) {
	for {
		k, v, held, err := s.first()
		if err != nil || k == nil {
			return held, err
		}
		item := &spooled{}
		err = json.Unmarshal(v, item)
		item.key = k
		if err == nil {
			return item, nil
		}
		s.drop(&item.Alert, fmt.Errorf("cannot be read in the spool: %w", err))
		s.finish(item)
	}
}

func (s *Spool) deliver(ctx context.Context, item *spooled) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil { // a sink is no reason for the gateway to die
			err = Permanent(fmt.Errorf("panic: %v", r))
		}
	}()
	return s.o.Sink.Send(ctx, item.Alert)
}

// Spools are the spools of the sinks that each name stands for. Notify is one
// for AlertOptions.
type Spools map[string][]*Spool

// Check returns an error if a rule names a sink that is not there.
func (s Spools) Check(rules []AlertRule) error {
	for _, r := range rules {
		for _, name := range r.Notify {
			if len(s[name]) == 0 {
				return fmt.Errorf("alert %q: no sink %q", r.Name, name)
			}
		}
	}
	return nil
}

// Notify puts a notice into the spools of the sinks that it names. What cannot
// be put was dropped, and has an event.
func (s Spools) Notify(a Alert) {
	for _, name := range a.Notify {
		for _, spool := range s[name] {
			_ = spool.Put(a)
		}
	}
}
