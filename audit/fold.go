package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Writer takes events for the log. WriteAll is Write of several events by one
// caller; it returns nil or the error of each.
type Writer interface {
	Write(e *Event) error
	WriteAll(es []*Event) []error
}

// FolderOptions of NewFolder. Log is required; a zero is its default.
type FolderOptions struct {
	Log      Writer
	Later    func(e *Event) error // of the log, for ends, which nobody waits for; Log.Write
	Interval time.Duration        // between two writes of what was folded; 1 s
	Burst    int                  // like denials of one interval that are written each by itself; 3
	Direct   int                  // denials of one sandbox and interval that are written each by itself; 200
	Refused  int                  // the same of denials that somebody waits for or that alert: connections, handshakes, requests; 1000
	Keys     int                  // different denials of one sandbox that are told apart in an interval; 256
	Now      func() time.Time
}

// Folder stands before a Log and folds repeats of denials: after one nothing
// happens, so its record may be late. Packets and questions are folded from the
// first repeats on, all else only in a flood.
// It then writes one event for many, with Count, FirstSeen and LastSeen. Counts are
// exact: the sum of Count (1 where it is absent) over what is written is the
// number of calls of Write that returned nil. Memory and the rate of writing are
// bounded per sandbox; denials that are too many to be told apart are folded
// without their names. It is safe for concurrent use.
type Folder struct {
	o  FolderOptions
	mu sync.Mutex
	// by lifecycle ID of the sandbox
	sandboxes map[string]*floods
	closed    bool
}

// floods are the denials of one sandbox in the present interval.
type floods struct {
	direct  int
	refused int // what counts for Refused
	exact   map[foldKey]*flood
	coarse  map[foldKey]*flood
}

// flood is one kind of denial.
type flood struct {
	seen        int    // in this interval
	folded      uint64 // not written yet
	first, last time.Time
	sample      *Event // the first that was folded
	different   bool   // coarse: the sample's names are an example
}

// foldSandboxes bounds the sandboxes that are told apart.
const foldSandboxes = 4096

// NewFolder returns a Folder. Run writes what it has folded.
func NewFolder(o FolderOptions) (*Folder, error) {
	if o.Log == nil {
		return nil, errors.New("folder: no log")
	}
	if o.Later == nil {
		o.Later = o.Log.Write
	}
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Burst <= 0 {
		o.Burst = 3
	}
	if o.Direct <= 0 {
		o.Direct = 200
	}
	if o.Refused <= 0 {
		o.Refused = 1000
	}
	if o.Keys <= 0 {
		o.Keys = 256
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Folder{o: o, sandboxes: make(map[string]*floods)}, nil
}

// Write records a denial, at once or folded. An event that is no denial goes
// straight to the log; an end may be written a little later. A Count of the event itself is taken as that many. Of an
// event that was folded, Req becomes that of the record that will count it.
func (f *Folder) Write(e *Event) error {
	if direct, err := f.take(e); err != nil || !direct {
		return err
	}
	return f.o.Log.Write(e)
}

// WriteAll is Write of several events, those that nothing folds together.
func (f *Folder) WriteAll(es []*Event) []error {
	var errs []error
	direct, at := make([]*Event, 0, len(es)), make([]int, 0, len(es))
	for i, e := range es {
		switch alone, err := f.take(e); {
		case err != nil:
			errs = noteError(errs, len(es), i, err)
		case alone:
			direct, at = append(direct, e), append(at, i)
		}
	}
	for i, err := range f.o.Log.WriteAll(direct) {
		errs = noteError(errs, len(es), at[i], err)
	}
	return errs
}

// take folds e if it may be, or hands it on if it is an end. It reports whether
// it is to be written by itself.
func (f *Folder) take(e *Event) (direct bool, err error) {
	if e.Phase == PhaseEnd {
		return false, f.o.Later(e)
	}
	if e.Phase != PhaseDecision || e.Verdict != "deny" {
		return true, nil
	}
	return f.fold(e)
}

// fold counts e, and reports whether it is to be written by itself.
func (f *Folder) fold(e *Event) (direct bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false, ErrClosed
	}
	s := f.sandbox(e)
	if awaited(e) && s.refused < f.o.Refused {
		s.refused++
		return true, nil
	}
	k := keyOf(e)
	x := s.exact[k]
	switch {
	case x != nil:
	case len(s.exact) < f.o.Keys:
		x = &flood{}
		s.exact[k] = x
	default:
		k = k.coarse()
		if x = s.coarse[k]; x == nil {
			x = &flood{different: true}
			s.coarse[k] = x
		}
	}
	x.seen++
	if !awaited(e) && x.folded == 0 && !x.different && x.seen <= f.o.Burst && s.direct < f.o.Direct {
		s.direct++
		return true, nil
	}
	x.add(e, f.o.Now())
	return false, nil
}

func (x *flood) add(e *Event, now time.Time) {
	first, last := now, now
	if e.FirstSeen != nil {
		first = *e.FirstSeen
	}
	if e.LastSeen != nil {
		last = *e.LastSeen
	}
	if x.folded == 0 {
		x.sample, x.first, x.last = e, first, last
	}
	x.folded += max(e.Count, 1)
	if e.Req != "" {
		e.Req = x.sample.Req
	}
	if first.Before(x.first) {
		x.first = first
	}
	if last.After(x.last) {
		x.last = last
	}
}

// sandbox returns the floods of the sandbox of e. Beyond a bound sandboxes
// share one.
func (f *Folder) sandbox(e *Event) *floods {
	id := ""
	if e.Sandbox != nil {
		id = e.Sandbox.ID + "\x00" + e.Sandbox.Name
	}
	s := f.sandboxes[id]
	if s == nil && len(f.sandboxes) >= foldSandboxes {
		id = ""
		s = f.sandboxes[id]
	}
	if s == nil {
		s = &floods{exact: make(map[foldKey]*flood), coarse: make(map[foldKey]*flood)}
		f.sandboxes[id] = s
	}
	return s
}

// Run writes what is folded at every interval until ctx ends, and then the
// rest.
func (f *Folder) Run(ctx context.Context) error {
	tick := time.NewTicker(f.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.mu.Lock()
			f.closed = true
			f.mu.Unlock()
			return f.Flush()
		case <-tick.C:
			// What could not be written stays folded and is tried again.
			_ = f.Flush()
		}
	}
}

// Flush writes what is folded and begins a new interval. What the log does not
// take is kept.
func (f *Folder) Flush() error {
	f.mu.Lock()
	old := f.sandboxes
	f.sandboxes = make(map[string]*floods)
	f.mu.Unlock()
	var errs []error
	for id, s := range old {
		for _, floods := range []map[foldKey]*flood{s.exact, s.coarse} {
			for k, x := range floods {
				if x.folded == 0 {
					continue
				}
				if err := f.o.Log.Write(x.event()); err != nil {
					errs = append(errs, err)
					f.keep(id, k, x)
				}
			}
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("folded denials: %d not written: %w", len(errs), errs[0])
	}
	return nil
}

// keep puts x back, to what has come since.
func (f *Folder) keep(id string, k foldKey, x *flood) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sandboxes[id]
	if s == nil {
		s = &floods{exact: make(map[foldKey]*flood), coarse: make(map[foldKey]*flood)}
		f.sandboxes[id] = s
	}
	if !x.different && s.exact[k] == nil && len(s.exact) >= f.o.Keys {
		k, x.different = k.coarse(), true
	}
	into := s.exact
	if x.different {
		into = s.coarse
	}
	y := into[k]
	if y == nil {
		into[k] = x
		return
	}
	if y.folded == 0 || x.first.Before(y.first) {
		y.first, y.sample = x.first, x.sample
	}
	if x.last.After(y.last) {
		y.last = x.last
	}
	y.folded += x.folded
}

// event is the one event for all of x.
func (x *flood) event() *Event {
	e := *x.sample
	first, last := x.first.UTC(), x.last.UTC()
	e.Count, e.FirstSeen, e.LastSeen = x.folded, &first, &last
	if x.folded == 1 && !x.different {
		e.Count, e.FirstSeen, e.LastSeen = x.sample.Count, x.sample.FirstSeen, x.sample.LastSeen
	}
	if x.different && x.folded > 1 {
		e.Message = variousMessage
	}
	return &e
}

// variousMessage marks a record of different targets. It is how records that lie
// in logs are known, too.
const variousMessage = "folded denials of different targets; host, path and addresses are those of the first"

// Various reports whether e stands for denials of different targets, of which it
// has the first one's host, path, addresses and rule.
func (e *Event) Various() bool { return e.Count > 1 && e.Message == variousMessage }
