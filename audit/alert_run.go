package audit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"time"
)

// placeBucket holds, by directory, how far the alert rules have read a log.
const placeBucket = "alert_place"

// alertTick is how often Run tells and saves.
const alertTick = time.Second

// alertLast is how long Run goes on after its end with what was written before.
const alertLast = 3 * time.Second

// Open finds where in the log in dir Run is to begin: where the last one left
// off, or at the end of a log that was never seen. What is written after Open is
// evaluated.
func (a *Alerts) Open(ctx context.Context, dir string) error {
	at, err := a.resume(ctx, dir)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.dir, a.cursor = dir, newCursor(dir, at)
	a.at, a.moved = at, true
	if l, ok := a.o.Log.(*Log); ok && l.o.Dir == dir {
		a.quiet = &l.quiet
		a.quiet.ask(a.judge)
	}
	a.mu.Unlock()
	a.tell()
	return nil
}

// Run evaluates the rules on what is written to the log of Open until ctx ends,
// and then on what was written by then. It reads the segments and remembers how
// far, so that what was written while it did not run, or was not told before a
// crash, is told after it: each at least once.
func (a *Alerts) Run(ctx context.Context) error {
	if a.cursor == nil {
		return errors.New("alerts: no log was opened")
	}
	c := a.cursor
	defer c.close()
	if a.quiet != nil {
		defer a.quiet.ask(nil)
	}
	tick := time.NewTicker(alertTick)
	defer tick.Stop()
	w := a.follower()
	defer w.close()
	poll := time.NewTicker(followPoll)
	defer poll.Stop()
	for {
		a.drain(ctx, c)
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), alertLast)
			a.drain(last, c)
			cancel()
			a.tickAt(c.at, a.tell)
			return nil
		case <-w.wake():
			a.gather(ctx)
		case <-a.heard():
			a.gather(ctx)
		case <-poll.C:
			if a.quiet == nil {
				w.watch()
			}
		case <-tick.C:
			a.tickAt(c.at, a.Tick)
		}
	}
}

// tickAt does what saves, with the place up to which the log is counted.
func (a *Alerts) tickAt(at place, do func()) {
	a.mu.Lock()
	a.reach(at)
	a.mu.Unlock()
	do()
}

// alertGather is how long what follows a record is waited for: under load the
// log grows all the time, and each look at it costs.
const alertGather = 100 * time.Millisecond

func (a *Alerts) gather(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(alertGather):
	}
}

// alertsTogether is how many notices are told at once at most: to save that they
// were is a write to the disk, and each name that is used for the first time is a
// notice.
const alertsTogether = 256

// drain evaluates the rules on what c has, and tells what comes of it.
func (a *Alerts) drain(ctx context.Context, c *cursor) {
	waiting, since := 0, time.Time{}
	tell := func() {
		if waiting > 0 {
			a.tell()
			waiting = 0
		}
	}
	defer tell()
	for ctx.Err() == nil {
		if waiting >= alertsTogether || waiting > 0 && time.Since(since) > alertGather {
			tell()
		}
		a.skip(c)
		line, err := c.next()
		switch {
		case errors.Is(err, io.EOF) && waiting > 0:
			tell() // which the log has as well
			continue
		case err != nil && !isLineError(err):
			return
		case err != nil || !a.mayMatch(line):
			continue
		}
		if e, err := DecodeLine(line); err == nil {
			if waiting == 0 {
				since = time.Now()
			}
			waiting = a.take(e, &c.at, false)
			a.remember(line, e)
		}
	}
}

// follower tells of what is written to the log where nobody else does.
func (a *Alerts) follower() *follower {
	if a.quiet != nil {
		return &follower{}
	}
	w := &follower{dirs: []string{a.dir}}
	w.watch()
	return w
}

// heard tells of what is written to the log that is not quiet. It is nil where
// another process writes.
func (a *Alerts) heard() <-chan struct{} {
	if a.quiet == nil {
		return nil
	}
	return a.quiet.wake
}

// skip passes over what no rule has to look at, as the log knows that wrote it.
func (a *Alerts) skip(c *cursor) {
	if a.quiet == nil {
		return
	}
	a.mu.Lock()
	j := a.judge
	a.mu.Unlock()
	c.jump(a.quiet.skip(j, c.at))
}

// mayMatch throws out most lines before they are decoded.
func (a *Alerts) mayMatch(line []byte) bool {
	if bytes.Contains(line, []byte(`"alert":"`)) {
		return true
	}
	a.mu.Lock()
	rules := a.rules // replaced as a whole
	a.mu.Unlock()
	seen := glanceAt(line)
	return slices.ContainsFunc(rules, func(r *ruleState) bool {
		switch {
		case r.Sum != "" && r.Kind == "" && bytes.Contains(line, []byte(`"bytes":{`)):
			return true // it may count, or be told of by the end of its connection
		case !seen.may(&r.AlertRule),
			r.needle != "" && !bytes.Contains(line, []byte(r.needle)),
			r.Sum != "" && !bytes.Contains(line, []byte(`"bytes":{`)),
			r.may != nil && !r.may(line),
			r.first && a.used(line):
			return false
		}
		return true
	})
}

// used says whether a line of the same sandbox and host was evaluated before.
func (a *Alerts) used(line []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.usage = appendUsage(a.usage[:0], line)
	_, known := a.usages[string(a.usage)]
	return known
}

// remember notes that a line was evaluated: another of the same sandbox and
// host is nothing that happens for the first time.
func (a *Alerts) remember(line []byte, e *Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.usage = appendUsage(a.usage[:0], line)
	if len(a.usage) == 0 || e.Verdict != "allow" || !isUse(e) {
		return // it is no use that the rule counts
	}
	if a.usages == nil || len(a.usages) >= maxGroups {
		a.usages = make(map[string]struct{})
	}
	a.usages[string(a.usage)] = struct{}{}
	a.judge.use(e)
}

// appendUsage appends the sandbox and the host of a line as they are written,
// or nothing where it has not both.
func appendUsage(dst, line []byte) []byte {
	for _, part := range []struct {
		key string
		end byte
	}{{`"sandbox":{`, '}'}, {`"host":"`, '"'}} {
		_, rest, ok := bytes.Cut(line, []byte(part.key))
		n := bytes.IndexByte(rest, part.end)
		if !ok || n < 0 {
			return dst[:0]
		}
		dst = append(append(dst, rest[:n]...), 0)
	}
	return dst
}

// resume returns where to read on in dir, after it has filled the windows with
// what lies before.
func (a *Alerts) resume(ctx context.Context, dir string) (place, error) {
	s, err := spanOf(dir)
	if err != nil {
		return place{}, err
	}
	v, err := a.o.State.Get(placeBucket, []byte(dir))
	if err != nil {
		return place{}, err
	}
	if len(v) != 16 {
		return s.end, nil
	}
	at := place{n: binary.BigEndian.Uint64(v), off: int64(binary.BigEndian.Uint64(v[8:]))}
	if s.end.before(at) {
		return s.end, nil // another log than the one that was read
	}
	longest := time.Duration(0)
	for _, r := range a.rules {
		if r.Threshold > 1 {
			longest = max(longest, r.Window)
		}
	}
	if longest > 0 && s.first.n <= at.n {
		before := span{dir: dir, first: s.first, end: at}
		for r := range forward(ctx, before, Filter{Since: a.o.Now().Add(-longest)}) {
			if r.event != nil {
				a.observe(r.event, nil, true)
			}
		}
	}
	return at, ctx.Err()
}
