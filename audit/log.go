package audit

import (
	"errors"
	"fmt"
	"os"
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

	mu       sync.Mutex
	group    *group // takes new callers
	closed   bool
	lateSoon bool // late will come

	commitMu sync.Mutex // held by the one who writes; guards everything down to the next blank line
	seg      segment
	end      position  // of the last record
	last     time.Time // of the last record
	buf      []byte
	retired  []file // segments that wait for their fsync and to be closed
	noRotate time.Time
	lookedAt time.Time // when the open segment's name was last checked
	pace     pace      // of the wall clock, for retention
	owed     []*Event  // about the log itself, that could not be written yet
	signed   uint64    // seq of the last checkpoint
	signedAt time.Time
	saved    uint64   // segment whose number is remembered
	known    []uint64 // closed segments, to notice when another hand removes one
	busy     bool     // the last group had more than one caller
	spare    *group   // to be used again
	shut     bool

	retaining sync.Mutex // held while segments are removed, or synced beside the writers

	entries sync.Pool // of *entry
	quiet   quiet
	fault   fault
	stats   counters
	late    *time.Timer   // to the background goroutine: nobody leads the group
	wake    chan struct{} // the same: look at the fault
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
		group: &group{}, late: time.NewTimer(lateMost),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), quiet: quiet{wake: make(chan struct{}, 1)},
	}
	l.late.Stop() // nothing is late yet
	err = l.recover()
	if err == nil {
		err = l.startPace()
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l.payOwed()
	l.keepHouse()
	l.saveSegment()
	l.done.Go(l.background)
	l.done.Go(l.keepIndex)
	return l, nil
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
	l.late.Stop()
	l.flushLate()
	l.retry() // the last chance for the event of a gap
	l.saveSegment()
	l.ageTime() // as long as what it has to tell can be written

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
	Refused  uint64        // records that were not written because the log was unavailable
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
		Records: c.records.Load(), Bytes: c.bytes.Load(), Groups: c.groups.Load(), Refused: l.fault.refusals(),
		Faults: c.faults.Load(), Syncs: c.syncs.Load(), SyncTime: time.Duration(c.syncNS.Load()),
		Rotated: c.rotated.Load(), Removed: c.removed.Load(), Seq: c.seq.Load(),
	}
}
