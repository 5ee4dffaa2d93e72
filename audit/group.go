package audit

import (
	"cmp"
	"runtime"
	"time"
)

// group is a number of records that are committed by one write.
type group struct {
	entries []*entry
	size    int
	waits   int           // callers who wait for it
	led     bool          // one of them, or whoever is late, commits it
	done    chan struct{} // closed when err of every entry is set; nil while nobody but the leader waits
}

// entry is one record of a group.
type entry struct {
	event *Event // nil: late, and nobody reads its place in the log
	at    time.Time
	body  []byte
	err   error

	quietTo *judge // says that it is
	size    int    // of the line with its newline, when it is written
}

// Caps of a group. Callers beyond them make the next one.
const (
	maxGroup      = 4096
	maxGroupBytes = 4 << 20
)

// lateMost is how long a record waits at most that nobody waits for, and the
// rest is how many of them do.
const (
	lateMost  = 50 * time.Millisecond
	maxLate   = 256
	lateBytes = 64 << 10
)

// entry encodes what does not depend on the place in the log. Entries are used
// again with their buffers.
func (l *Log) entry(e *Event) *entry {
	x, ok := l.entries.Get().(*entry)
	if !ok {
		x = &entry{}
	}
	x.event, x.err, x.quietTo = e, nil, nil
	if j := l.quiet.judge.Load(); j != nil && j.quiet(e) {
		x.quietTo = j
	}
	x.body = appendBody(x.body[:0], e)
	return x
}

// Write fills in the event's place in the log and returns when its line has
// been handed to the kernel, with SyncAlways when it is on disk. Until then the
// event is the log's. Callers who wait at the same time are committed by one
// write. While the log cannot be written it returns ErrUnavailable at once, and
// works again by itself. A record that was refused is not in the log, unless it
// was its fsync that failed.
func (l *Log) Write(e *Event) error {
	if err := l.fault.refuse(l.o.Now); err != nil {
		return err
	}
	x := l.entry(e)
	g, done, err := l.join(x)
	if err != nil {
		return err
	}
	l.await(g, done)
	err = x.err
	x.event = nil
	l.entries.Put(x)
	return err
}

// maxAtOnce is how many events of one caller are handed to a group at a time.
// They fit into any group that is not led yet, however long they are.
const maxAtOnce = 128

// WriteAll is Write of several events by one caller, which take one write
// together. It returns nil when each of them is written, and otherwise what
// Write would return for each.
func (l *Log) WriteAll(es []*Event) []error {
	var errs []error
	for start := 0; start < len(es); start += maxAtOnce {
		some := es[start:min(start+maxAtOnce, len(es))]
		for i, err := range l.writeSome(some) {
			errs = noteError(errs, len(es), start+i, err)
		}
	}
	return errs
}

// writeSome is WriteAll of at most maxAtOnce events.
func (l *Log) writeSome(es []*Event) (errs []error) {
	var few [maxAtOnce]*entry
	entries := few[:0]
	for i, e := range es {
		if err := l.fault.refuse(l.o.Now); err != nil {
			errs = noteError(errs, len(es), i, err)
			entries = append(entries, nil)
			continue
		}
		entries = append(entries, l.entry(e))
	}
	g, done, err := l.join(entries...)
	if err == nil {
		l.await(g, done)
	}
	for i, x := range entries {
		if x == nil {
			continue
		}
		errs = noteError(errs, len(es), i, cmp.Or(err, x.err))
		x.event = nil
		l.entries.Put(x)
	}
	return errs
}

// noteError sets the i-th of n errors, where there is one.
func noteError(errs []error, n, i int, err error) []error {
	if err == nil {
		return errs
	}
	if errs == nil {
		errs = make([]error, n)
	}
	errs[i] = err
	return errs
}

// await commits g, which the caller leads, or waits for who does.
func (l *Log) await(g *group, done <-chan struct{}) {
	if g != nil {
		l.lead(g)
	} else if done != nil {
		<-done
	}
}

// Later takes an event that nothing waits for, such as an end: it is written
// with the next that somebody waits for, and otherwise soon by itself. It has
// the time of the call and stands before what is written after it. If the log
// cannot be written by then, it is one of those that the event of the gap
// counts. The event stays the caller's, and its place is not filled in.
func (l *Log) Later(e *Event) error {
	if err := l.fault.refuse(l.o.Now); err != nil {
		return err
	}
	x := l.entry(e)
	x.event, x.at = nil, l.now()
	g, err := l.joinLate(x)
	if g != nil {
		l.lead(g)
	}
	return err
}

// join adds entries to the open group; nil is none. The first who waits for it
// leads it, and gets it: it commits for all as soon as the group before is done.
// The others wait until done is closed.
func (l *Log) join(entries ...*entry) (lead *group, done <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, ErrClosed
	}
	g := l.add(entries...)
	if g == nil {
		return nil, nil, nil
	}
	g.waits++
	if !g.led {
		g.led = true
		return g, nil, nil
	}
	if g.done == nil {
		g.done = make(chan struct{})
	}
	return nil, g.done, nil
}

// joinLate adds x to the open group, for the one who will lead it. If too many
// wait for that already, the caller gets the group to lead.
func (l *Log) joinLate(x *entry) (lead *group, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	g := l.add(x)
	switch {
	case g.led:
	case len(g.entries) >= maxLate || g.size >= lateBytes:
		g.led = true
		return g, nil
	case !l.lateSoon:
		l.lateSoon = true
		l.late.Reset(lateMost)
	}
	return nil, nil
}

// add puts entries into the open group, all into a new one if they do not fit,
// which they only fail to where it is led. It returns nil where there are none.
// Called with mu held.
func (l *Log) add(entries ...*entry) *group {
	n, size := 0, 0
	for _, x := range entries {
		if x != nil {
			n++
			size += len(x.body)
		}
	}
	if n == 0 {
		return nil
	}
	g := l.group
	if len(g.entries)+n > maxGroup || g.size+size > maxGroupBytes {
		g = &group{}
		l.group = g
	}
	for _, x := range entries {
		if x != nil {
			g.entries = append(g.entries, x)
		}
	}
	g.size += size
	return g
}

// flushLate commits the records that wait for nobody.
func (l *Log) flushLate() {
	l.mu.Lock()
	l.lateSoon = false
	g := l.group
	if g.led || len(g.entries) == 0 {
		g = nil
	} else {
		g.led = true
	}
	l.mu.Unlock()
	if g != nil {
		l.lead(g)
	}
}

// lead commits g and lets go who waits for it.
func (l *Log) lead(g *group) {
	l.commitMu.Lock()
	if l.busy {
		runtime.Gosched() // those who are about to write join this group
	}
	l.mu.Lock()
	if l.group == g {
		if l.spare == nil {
			l.spare = &group{}
		}
		l.group, l.spare = l.spare, nil
	}
	l.mu.Unlock()
	l.busy = g.waits > 1
	l.commit(g)
	for _, x := range g.entries {
		if x.event == nil {
			l.entries.Put(x)
		}
	}
	done := g.done
	if cap(g.entries) <= maxLate {
		clear(g.entries)
		*g = group{entries: g.entries[:0]}
		l.spare = g
	}
	l.commitMu.Unlock()
	if done != nil {
		close(done)
	}
}
