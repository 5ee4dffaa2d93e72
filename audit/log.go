package audit

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Log is the writer of one directory of segments. It is safe for concurrent
// use. What Write has acknowledged is in the kernel's hands and survives the
// death of the process at any instant.
type Log struct {
	o        Options
	open     opener
	logger   hclog.Logger
	lock     *os.File
	instance string

	mu     sync.Mutex
	group  *group // takes new callers
	closed bool

	commitMu sync.Mutex // held by the one who writes; guards everything down to the next blank line
	seg      segment
	end      position  // of the last record
	last     time.Time // of the last record
	buf      []byte
	retired  []file // segments that wait for their fsync and to be closed
	noRotate time.Time
	lookedAt time.Time // when the open segment's name was last checked
	owed     []*Event  // about the log itself, that could not be written yet
	signed   uint64    // seq of the last checkpoint
	signedAt time.Time
	known    []uint64 // closed segments, to notice when another hand removes one
	busy     bool     // the last group had more than one caller
	shut     bool

	retaining sync.Mutex // held while segments are removed

	entries sync.Pool // of *entry
	fault   fault
	stats   counters
	wake    chan struct{} // to the background goroutine: look at the fault
	stop    chan struct{}
	done    sync.WaitGroup
}

// segment is the open segment.
type segment struct {
	f      file
	n      uint64
	size   int64
	opened time.Time // wall clock
	dirty  bool      // written since the last fsync
}

// position is a place in the chain: the sequence number and the hash of a
// record.
type position struct {
	seq  uint64
	hash [32]byte
}

// group is a number of callers who are committed by one write.
type group struct {
	entries []*entry
	size    int
	done    chan struct{} // closed when err of every entry is set
}

// entry is one caller of a group.
type entry struct {
	event *Event
	body  []byte
	err   error
}

// Caps of a group. Callers beyond them make the next one.
const (
	maxGroup      = 4096
	maxGroupBytes = 4 << 20
)

// Open opens the log in o.Dir for writing and makes the directory if it is not
// there. A last line that was not finished is cut off, with an event that says
// so, and the chain goes on from the record before. There is one writer per
// directory; a second one gets ErrBusy, with the holder's process in the text.
func Open(o Options) (*Log, error) { return openLog(o, openFile) }

// openLog is Open on a disk of the caller's choice.
func openLog(o Options, open opener) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := makeDir(o.Dir); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l := &Log{
		o: o, open: open, logger: o.Logger.Named("audit"), lock: lock, instance: NewID(),
		group: newGroup(),
		wake:  make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if err := l.recover(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l.payOwed()
	l.keepHouse()
	l.done.Go(l.background)
	l.done.Go(l.keepIndex)
	return l, nil
}

func newGroup() *group { return &group{done: make(chan struct{})} }

// entry encodes what does not depend on the place in the log. Entries are used
// again with their buffers.
func (l *Log) entry(e *Event) *entry {
	x, ok := l.entries.Get().(*entry)
	if !ok {
		x = &entry{}
	}
	x.event, x.err = e, nil
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
	g, leader, err := l.join(x)
	if err != nil {
		return err
	}
	if leader {
		l.commitMu.Lock()
		if l.busy {
			runtime.Gosched() // those who are about to write join this group
		}
		l.mu.Lock()
		if l.group == g {
			l.group = newGroup()
		}
		l.mu.Unlock()
		l.busy = len(g.entries) > 1
		l.commit(g)
		l.commitMu.Unlock()
		close(g.done)
	} else {
		<-g.done
	}
	err = x.err
	x.event = nil
	l.entries.Put(x)
	return err
}

// join adds x to the open group. The first of a group leads it: it commits for
// all as soon as the group before is done.
func (l *Log) join(x *entry) (g *group, leader bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false, ErrClosed
	}
	g = l.group
	if len(g.entries) >= maxGroup || g.size+len(x.body) > maxGroupBytes {
		g = newGroup()
		l.group = g
	}
	g.entries = append(g.entries, x)
	g.size += len(x.body)
	return g, len(g.entries) == 1, nil
}

// Healthy returns nil while the log can be written, and otherwise why not.
func (l *Log) Healthy() error { return l.fault.current() }

// Instance is the ID of this opening of the log; every record carries it.
func (l *Log) Instance() string { return l.instance }

// Close writes what waits, syncs it unless SyncNever, and gives the directory
// free. Write returns ErrClosed from then on.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	l.done.Wait()
	l.retry() // the last chance for the event of a gap

	l.commitMu.Lock()
	defer l.commitMu.Unlock()
	l.checkpointDue(true)
	l.shut = true
	var errs []error
	if l.o.Sync != SyncNever {
		errs = append(errs, l.syncAll())
	}
	l.closeRetired()
	errs = append(errs, l.saveEnd(), l.seg.f.Close(), l.lock.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("audit log: close: %w", err)
	}
	return nil
}

// counters are what Stats reads, apart from what commitMu guards.
type counters struct {
	records atomic.Uint64
	bytes   atomic.Uint64
	groups  atomic.Uint64
	refused atomic.Uint64
	faults  atomic.Uint64
	syncs   atomic.Uint64
	syncNS  atomic.Int64
	rotated atomic.Uint64
	removed atomic.Uint64
	seq     atomic.Uint64
}

// Stats counts what a Log has done since it was opened.
type Stats struct {
	Records  uint64        // written
	Bytes    uint64        // written
	Groups   uint64        // write calls; Records/Groups is what group commit gains
	Refused  uint64        // calls of Write that got ErrUnavailable
	Faults   uint64        // times that the log became unavailable
	Syncs    uint64        // fsync calls
	SyncTime time.Duration // spent in them
	Rotated  uint64        // segments begun
	Removed  uint64        // segments removed by retention
	Seq      uint64        // of the last record
}

// Stats returns the counters as they are now.
func (l *Log) Stats() Stats {
	c := &l.stats
	return Stats{
		Records: c.records.Load(), Bytes: c.bytes.Load(), Groups: c.groups.Load(), Refused: c.refused.Load(),
		Faults: c.faults.Load(), Syncs: c.syncs.Load(), SyncTime: time.Duration(c.syncNS.Load()),
		Rotated: c.rotated.Load(), Removed: c.removed.Load(), Seq: c.seq.Load(),
	}
}
