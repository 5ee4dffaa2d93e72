package audit

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// Retention by age does not believe at once that the wall clock is further ahead
// of the time that was believed than paceStep. It believes as much as the clock
// was ahead at every look for paceWait; what came on top meanwhile waits next.
// Only time in which there were looks counts, in one run or in several, so what
// is right is believed after two paceWaits at the most, however short the runs
// are and however often the clock steps.
const (
	paceStep = time.Hour
	paceWait = time.Hour
)

// pace compares the wall clock with the time that the machine has been up.
type pace struct {
	wall time.Time     // was believed
	up   time.Duration // when the machine had been up for so long
	seen time.Duration // the same of the last look
	told time.Duration // how far ahead the clock is known to be
	unbelieved
}

// unbelieved is what the clock shows and is not believed yet.
type unbelieved struct {
	least  time.Duration // that the clock was ahead; 0: nothing
	lasted time.Duration // of looks that found it so
}

// newPace begins with the time that was believed last, if there is one, and what
// was not then: a clock that stepped while nothing ran is not believed at
// once either.
func newPace(last time.Time, u unbelieved, now time.Time, up time.Duration) pace {
	if last.IsZero() || last.After(now) {
		last = now
	}
	p := pace{wall: last, up: up, seen: up, unbelieved: u}
	p.believed(now, up)
	return p
}

// believed returns the time to count ages by, and how large a step is of which
// it hears for the first time.
func (p *pace) believed(now time.Time, up time.Duration) (at time.Time, step time.Duration) {
	expected := p.wall.Add(up - p.up)
	ahead := now.Sub(expected)
	if ahead < 0 {
		p.wall, p.up = now, up
	}
	if ahead <= paceStep {
		p.seen, p.told, p.unbelieved = up, 0, unbelieved{}
		return now, 0
	}
	switch grown := ahead - p.told; {
	case grown > paceStep:
		p.told, step = ahead, grown
	case grown < -paceStep:
		p.told = ahead
	}
	if p.least == 0 {
		p.least = ahead
	} else {
		p.least = min(p.least, ahead)
		p.lasted += up - p.seen
	}
	p.seen = up
	if p.lasted < paceWait {
		return expected, step
	}
	p.wall, p.up = expected.Add(p.least), up
	p.told, p.unbelieved = p.told-p.least, unbelieved{}
	at, _ = p.believed(now, up) // what is left waits from here on
	return at, step
}

// paceKey is where stateBucket has the time that was believed last.
func paceKey(dir string) []byte { return []byte(dir + "\x00time") }

// startPace begins with what is remembered, or else with the time of the last
// record.
func (l *Log) startPace() error {
	last, u := l.last, unbelieved{}
	if l.o.State != nil {
		v, err := l.o.State.Get(stateBucket, paceKey(l.o.Dir))
		if err != nil {
			return err
		}
		if len(v) >= 8 {
			last = time.Unix(0, int64(binary.BigEndian.Uint64(v)))
		}
		if len(v) == 24 {
			u = unbelieved{time.Duration(binary.BigEndian.Uint64(v[8:])), time.Duration(binary.BigEndian.Uint64(v[16:]))}
		}
		if u.least <= paceStep || u.lasted < 0 {
			u = unbelieved{} // of none that ran
		}
	}
	l.pace = newPace(last, u, l.o.Now(), l.o.up())
	return nil
}

// paceMark is what startPace finds. Called with commitMu held.
func (l *Log) paceMark() []byte {
	l.lookAtClock() // the time until now counts
	p := &l.pace
	return slices.Concat(key(uint64(p.wall.Add(p.seen-p.up).UnixNano())), key(uint64(p.least)), key(uint64(p.lasted)))
}

// ageTime is the time by which retention counts ages.
func (l *Log) ageTime() time.Time {
	l.commitMu.Lock()
	defer l.commitMu.Unlock()
	at := l.lookAtClock()
	if l.fault.current() == nil {
		l.payOwed()
	}
	return at
}

// lookAtClock returns the time that is believed. A step that it does not
// believe yet is an event. Called with commitMu held.
func (l *Log) lookAtClock() time.Time {
	at, step := l.pace.believed(l.o.Now(), l.o.up())
	if step == 0 {
		return at
	}
	l.logger.Warn("clock went forward", "by", step)
	l.owed = append(l.owed, &Event{
		Severity: High,
		Message: fmt.Sprintf("the wall clock went forward by %s; nothing is removed by age until that has lasted for %s",
			step.Round(time.Millisecond), paceWait),
		Note: &Note{Action: ActionClock},
	})
	return at
}
