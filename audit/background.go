package audit

import "time"

// housekeeping is how often retention and the segments on disk are looked at.
const housekeeping = 10 * time.Second

// wakeUp makes the background goroutine look at what there is to do.
func (l *Log) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// background syncs, keeps house and ends faults until Close.
func (l *Log) background() {
	interval := l.o.Interval
	if l.o.Sync != SyncInterval {
		interval = housekeeping
	}
	syncTick := time.NewTicker(interval)
	defer syncTick.Stop()
	houseTick := time.NewTicker(housekeeping)
	defer houseTick.Stop()
	wait, waits := time.Duration(0), false
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.late.C:
			l.flushLate()
		case <-syncTick.C:
			l.syncDirty()
		case <-houseTick.C:
			l.keepHouse()
		case <-l.wake:
			l.saveSegment()
			l.retain()
		case <-retry.C:
			waits = false
			if l.retry() {
				wait = 0
			}
		}
		if l.fault.current() != nil && !waits {
			waits, wait = true, min(max(2*wait, retryFirst), retryMost)
			retry.Reset(wait)
		}
	}
}

// syncDirty is the fsync of SyncInterval. Writers go on meanwhile.
func (l *Log) syncDirty() {
	if l.o.Sync != SyncInterval {
		return
	}
	l.retaining.Lock() // retention syncs and closes what a rotation in between retires
	defer l.retaining.Unlock()
	l.commitMu.Lock()
	retired, f := l.retired, l.seg.f
	l.retired = nil
	dirty := l.seg.dirty
	l.seg.dirty = false
	l.commitMu.Unlock()

	var err error
	for _, old := range retired {
		if e := l.sync(old); e != nil && err == nil {
			err = e
		}
		old.Close()
	}
	// A rotation in between closes f only in a later call of this function.
	if dirty {
		if e := l.sync(f); e != nil {
			err = e
		}
	}
	if err != nil {
		l.commitMu.Lock()
		l.fault.doubt()
		l.fail(err)
		l.commitMu.Unlock()
	}
}

// keepHouse does what has no other occasion.
func (l *Log) keepHouse() {
	l.commitMu.Lock()
	if l.fault.current() == nil {
		if !l.payOwed() {
			l.commitMu.Unlock()
			return
		}
		now := l.o.Now()
		l.checkSegment(now)
		l.checkClosed()
		l.rotateIfDue(0, now)
		l.checkpointDue(false)
	}
	if err := l.saveEnd(); err != nil {
		l.logger.Warn("end of log not saved", "error", err)
	}
	l.commitMu.Unlock()
	l.retain()
}

// keepIndex indexes in batches until Close. It reads what was written from the
// segments, so writers never wait for it.
func (l *Log) keepIndex() {
	x := &indexer{dir: l.o.Dir, logger: l.logger}
	tick := time.NewTicker(indexEvery)
	defer tick.Stop()
	failed := false
	for {
		err := x.update(l.stop)
		if err != nil && !failed {
			l.logger.Warn("index is not kept; reading takes longer", "error", err)
		}
		failed = err != nil
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
	}
}
