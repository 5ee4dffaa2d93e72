package audit

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Retention by age does not believe at once a step of the wall clock forward
// that is larger than paceStep: only when it has lasted for paceWait.
const (
	paceStep = time.Hour
	paceWait = time.Hour
)

// pace compares the wall clock with the time that the machine has been up.
type pace struct {
	wall  time.Time     // was believed
	up    time.Duration // when the machine had been up for so long
	ahead time.Duration // of the step that is not believed yet; 0 is none
	since time.Duration // when it came, as up
}

// newPace begins with the time that was believed last, if there is one: a clock
// that stepped while nothing ran is not believed at once either.
func newPace(last, now time.Time, up time.Duration) pace {
	if last.IsZero() || last.After(now) {
		last = now
	}
	p := pace{wall: last, up: up}
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
		p.ahead = 0
		return now, 0
	}
	switch grown := ahead - p.ahead; {
	case grown > paceStep:
		p.ahead, p.since, step = ahead, up, grown
	case grown < -paceStep:
		p.ahead, p.since = ahead, up
	case up-p.since >= paceWait:
		*p = pace{wall: now, up: up}
		return now, 0
	}
	return expected, step
}

// paceKey is where stateBucket has the time that was believed last.
func paceKey(dir string) []byte { return []byte(dir + "\x00time") }

// startPace begins with the time that is remembered, or else that of the last
// record.
func (l *Log) startPace() error {
	last := l.last
	if l.o.State != nil {
		v, err := l.o.State.Get(stateBucket, paceKey(l.o.Dir))
		if err != nil {
			return err
		}
		if len(v) == 8 {
			last = time.Unix(0, int64(binary.BigEndian.Uint64(v)))
		}
	}
	l.pace = newPace(last, l.o.Now(), l.o.up())
	return nil
}

// paceMark is what startPace finds.
func (l *Log) paceMark() []byte {
	return key(uint64(l.pace.wall.Add(l.o.up() - l.pace.up).UnixNano()))
}

// ageTime is the time by which retention counts ages. A step that it does not
// believe yet is an event.
func (l *Log) ageTime() time.Time {
	l.commitMu.Lock()
	defer l.commitMu.Unlock()
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
	if l.fault.current() == nil {
		l.payOwed()
	}
	return at
}
