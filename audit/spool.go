package audit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
// them, in order, each at least once.
type Spool struct {
	o       SpoolOptions
	bucket  string
	mu      sync.Mutex
	next    uint64
	waiting int
	wake    chan struct{}

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
	s := &Spool{o: o, bucket: "spool/" + o.Name, wake: make(chan struct{}, 1)}
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
}

// Put takes a notice. It is on disk when Put returns; the receiver is not
// waited for. A full spool drops it, with an event.
func (s *Spool) Put(a Alert) error {
	b, err := json.Marshal(spooled{s.o.Now(), a})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting >= s.o.Limit {
		err := fmt.Errorf("sink %q: %d notices wait already", s.o.Name, s.waiting)
		s.drop(&a, err)
		return err
	}
	if err := s.o.State.Put(s.bucket, key(s.next), b); err != nil {
		return fmt.Errorf("sink %q: %w", s.o.Name, err)
	}
	s.next++
	s.waiting++
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
	return s.waiting
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
// start.
func (s *Spool) Run(ctx context.Context) error {
	wait := s.o.RetryFirst
	failing := false
	for {
		k, item, err := s.oldest()
		if err != nil {
			return fmt.Errorf("sink %q: %w", s.o.Name, err)
		}
		if k == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-s.wake:
			}
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
			s.remove(k)
			failing, wait = false, s.o.RetryFirst
			continue
		case IsPermanent(err), s.o.Now().Sub(item.Since) > s.o.MaxAge:
			s.drop(&item.Alert, err)
			s.remove(k)
			continue
		}
		s.failed.Add(1)
		s.o.Count(item.Alert.Name, "failed")
		if !failing {
			failing = true
			s.event(ActionUndelivered, High, &item.Alert, err)
		}
		// Half of the wait is by chance, so that many gateways do not come at once.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		}
		wait = min(2*wait, s.o.RetryMost)
	}
}

// oldest returns the notice that waits longest, nil if none does. One that
// cannot be read is removed.
func (s *Spool) oldest() (k []byte, item spooled, err error) {
	stop := errors.New("stop")
	var v []byte
	err = s.o.State.ForEach(s.bucket, func(key, value []byte) error {
		k, v = slices.Clone(key), slices.Clone(value)
		return stop
	})
	if err != nil && !errors.Is(err, stop) {
		return nil, item, err
	}
	if k != nil && json.Unmarshal(v, &item) != nil {
		s.remove(k)
		return s.oldest()
	}
	return k, item, nil
}

func (s *Spool) deliver(ctx context.Context, item spooled) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil { // a sink is no reason for the gateway to die
			err = Permanent(fmt.Errorf("panic: %v", r))
		}
	}()
	return s.o.Sink.Send(ctx, item.Alert)
}

func (s *Spool) remove(k []byte) {
	if err := s.o.State.Delete(s.bucket, k); err != nil {
		s.o.Logger.Warn("notice not removed from spool", "sink", s.o.Name, "error", err)
	}
	s.mu.Lock()
	s.waiting--
	s.mu.Unlock()
}

func (s *Spool) drop(a *Alert, why error) {
	s.dropped.Add(1)
	s.o.Count(a.Name, "dropped")
	s.event(ActionDropped, High, a, why)
}

// event records that delivery fails.
func (s *Spool) event(action string, severity Severity, a *Alert, why error) {
	s.o.Logger.Warn("notice not delivered", "sink", s.o.Name, "alert", a.Name, "action", action, "error", why)
	err := s.o.Log.Write(&Event{
		Kind: KindAudit, Phase: PhaseEvent, Severity: severity, Req: a.ID,
		Message: fmt.Sprintf("alert %s to sink %s: %v", Escape(a.Name, 64), Escape(s.o.Name, 64), why), Note: &Note{Action: action},
	})
	if err != nil {
		s.o.Logger.Error("failed delivery not recorded", "sink", s.o.Name, "error", err)
	}
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
// be put has an event.
func (s Spools) Notify(a Alert) {
	for _, name := range a.Notify {
		for _, spool := range s[name] {
			_ = spool.Put(a)
		}
	}
}
