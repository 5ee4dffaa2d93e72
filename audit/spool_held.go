package audit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// spooled puts on disk what spools hold in memory, and reports whether that has
// become of all of it.
func (s *State) spooled() bool {
	s.mu.Lock()
	list := slices.Collect(maps.Keys(s.holding))
	s.mu.Unlock()
	all := true
	for _, spool := range list {
		spool.mu.Lock()
		all = spool.unhold() == nil && all
		spool.mu.Unlock()
	}
	return all
}

// holds has spooled know of s when it holds something. Called with mu of s held.
func (s *State) holds(spool *Spool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(spool.held) > 0 {
		s.holding[spool] = struct{}{}
	} else {
		delete(s.holding, spool)
	}
}

// unhold puts what is held on disk, in order, and returns why it cannot. Called
// with mu held.
func (s *Spool) unhold() error {
	defer s.o.State.holds(s)
	for len(s.held) > 0 {
		item := s.held[0]
		b, err := json.Marshal(item)
		if err != nil {
			return err
		}
		k := key(s.next)
		if err := s.o.State.Put(s.bucket, k, b); err != nil {
			return err
		}
		item.key = k
		s.held = s.held[1:]
		s.next++
		s.waiting++
	}
	return nil
}

// first returns the first notice on disk or, where there is none, in memory.
func (s *Spool) first() (k, v []byte, held *spooled, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stop := errors.New("stop")
	err = s.o.State.ForEach(s.bucket, func(key, value []byte) error {
		if len(key) != 8 || binary.BigEndian.Uint64(key) < s.past {
			return nil
		}
		k, v = slices.Clone(key), slices.Clone(value)
		return stop
	})
	if err != nil && !errors.Is(err, stop) {
		return nil, nil, nil, err
	}
	if k == nil && len(s.held) > 0 {
		held = s.held[0]
	}
	return k, v, held, nil
}

// finish removes a notice that is done with. Where it cannot be removed from
// disk it is passed over, and removed later.
func (s *Spool) finish(item *spooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if item.key == nil {
		s.held = slices.DeleteFunc(s.held, func(x *spooled) bool { return x == item })
		s.o.State.holds(s)
		return
	}
	s.waiting--
	s.past = binary.BigEndian.Uint64(item.key) + 1
	s.left = append(s.left, item.key)
	if err := s.sweep(); err != nil {
		s.o.Logger.Warn("notice not removed from spool", "sink", s.o.Name, "error", err)
	}
}

// sweep removes from disk what is done with. Called with mu held.
func (s *Spool) sweep() error {
	if len(s.left) == 0 {
		return nil
	}
	err := s.o.State.DeleteAll(s.bucket, s.left)
	if err == nil {
		s.left = nil
	}
	return err
}

// settle tries again what disk and log did not take.
func (s *Spool) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.sweep(), s.unhold() // they were told of when they failed first
	s.payOwed()
}

// unsettled is when to settle next; never where nothing is to be settled.
func (s *Spool) unsettled() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 && len(s.held) == 0 && s.owed.count == 0 {
		return nil
	}
	return time.After(s.o.RetryFirst)
}

// rest waits before the next attempt, and settles meanwhile. It reports false
// when ctx has ended.
func (s *Spool) rest(ctx context.Context, d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return true
		case <-s.wake: // something may be held since
		case <-s.unsettled():
			s.settle()
		}
	}
}

// giveUpHeld is the end: what the disk takes is for the next start, what it does
// not take is dropped.
func (s *Spool) giveUpHeld() {
	s.mu.Lock()
	_ = s.sweep() // else some are delivered once more
	err := s.unhold()
	rest := s.held
	s.held = nil
	s.mu.Unlock()
	for _, item := range rest {
		s.drop(&item.Alert, fmt.Errorf("the gateway ends and it cannot be spooled: %w", err))
	}
	s.settle()
}

// drop gives a notice up. Called without mu.
func (s *Spool) drop(a *Alert, why error) {
	s.dropped.Add(1)
	s.o.Count(a.Name, "dropped")
	s.mu.Lock()
	if a.State == Firing && a.Count == a.New && len(s.lost) < s.o.Limit {
		s.lost[a.ID] = true // the first of its alert
	}
	s.mu.Unlock()
	s.event(ActionDropped, High, a, why)
}

// untold reports whether a is the end of an alert of which the sink was told
// nothing.
func (s *Spool) untold(a *Alert) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.State == Resolved && s.lost[a.ID]
}

// told notes that the sink knows of an alert, or that the alert is over.
func (s *Spool) told(a *Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lost, a.ID)
}

// owed are notices that were given up while the log could not be written.
type owed struct {
	count uint64
	last  Event // the record of the last
}

// event records that delivery fails. Called without mu.
func (s *Spool) event(action string, severity Severity, a *Alert, why error) {
	s.o.Logger.Warn("notice not delivered", "sink", s.o.Name, "alert", a.Name, "action", action, "error", why)
	e := Event{
		Kind: KindAudit, Phase: PhaseEvent, Severity: severity, Req: a.ID,
		Message: fmt.Sprintf("alert %s to sink %s: %v", Escape(a.Name, 64), Escape(s.o.Name, 64), why), Note: &Note{Action: action},
	}
	record := e
	err := s.o.Log.Write(&record)
	if err == nil {
		return
	}
	s.o.Logger.Error("failed delivery not recorded", "sink", s.o.Name, "error", err)
	if action == ActionDropped {
		s.mu.Lock()
		s.owed = owed{s.owed.count + 1, e}
		s.mu.Unlock()
	}
}

// payOwed records what was given up while the log could not be written, as one
// record. Called with mu held.
func (s *Spool) payOwed() {
	if s.owed.count == 0 {
		return
	}
	e := s.owed.last
	if s.owed.count > 1 {
		e.Count = s.owed.count
		e.Message = fmt.Sprintf("%d notices were given up while the log could not be written; the last: %s", e.Count, e.Message)
	}
	if s.o.Log.Write(&e) == nil {
		s.owed = owed{}
	}
}
