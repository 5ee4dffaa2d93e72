//go:build linux

package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// PacketLog tells which packets were refused. Its totals are exact: what the
// kernel's limit kept out of the log, or what the log lost, is known from the
// counters of the rules and reported without addresses.
type PacketLog struct {
	log      *netfilterSocket
	counters *netfilterSocket
	name     string // Packet.Interface
	device   string // whose counters are read
	buffer   []byte // nil while nothing comes

	ready     []Packet // to be returned by Next
	fold      fold
	accounted [classes]uint64 // counted packets that were taken from the log or reported
	before    [classes]uint64 // the counters at the tick before
	tick      time.Time       // when the counters are read next
	lastTick  time.Time
	finished  bool // what was refused until the end is in ready
}

const (
	// countBusy is the time between two readings of the counters while packets
	// are refused. It must be longer than the kernel holds a batch (logTimeout):
	// what a counter showed a tick ago and the log has not told is lost.
	countBusy = time.Second
	countIdle = 30 * time.Second
	// logSettles is how long Next waits for the kernel's last batch when it is
	// asked to end.
	logSettles = 50 * time.Millisecond
)

// newPacketLog takes both sockets over. The counters of device begin at 0 with
// the rules, so every packet since is told.
func newPacketLog(log, counters *netfilterSocket, name, device string) *PacketLog {
	return &PacketLog{log: log, counters: counters, name: name, device: device}
}

// Close closes the sockets; a waiting Next returns os.ErrClosed.
func (p *PacketLog) Close() error {
	return errors.Join(p.log.Close(), p.counters.Close())
}

// Next waits for a refused packet, or for several that are folded into one.
// When ctx is done it still returns everything that was refused until then, and
// only then the context's error. Next is for one goroutine.
func (p *PacketLog) Next(ctx context.Context) (Packet, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.log.setDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		if len(p.ready) > 0 {
			next := p.ready[0]
			p.ready = p.ready[1:]
			return next, nil
		}
		if ctx.Err() != nil && p.finished {
			return Packet{}, ctx.Err()
		}
		if ctx.Err() != nil {
			if err := p.finish(); err != nil {
				return Packet{}, errors.Join(ctx.Err(), err)
			}
			continue
		}
		if err := p.step(ctx); err != nil {
			return Packet{}, err
		}
	}
}

// step waits for the log or for the next thing to do by the clock, and does it.
func (p *PacketLog) step(ctx context.Context) error {
	now := time.Now()
	if p.lastTick.IsZero() {
		p.lastTick, p.tick = now, now.Add(countIdle)
	}
	wake := p.tick
	if len(p.fold.flows) > 0 && p.fold.ends.Before(wake) {
		wake = p.fold.ends
	}
	if err := p.log.setDeadline(wake); err != nil {
		return err
	}
	if ctx.Err() != nil { // its deadline may have been overwritten just now
		return nil
	}
	n, err := p.log.receive(p.room)
	now = time.Now()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.EINTR):
		// What did not fit the receive buffer is found by the counters.
	case err != nil:
		return fmt.Errorf("packet log: %w", err)
	default:
		if err := p.take(p.buffer[:n], now); err != nil {
			return err
		}
	}
	p.ready = append(p.ready, p.fold.due(now)...)
	if now.Before(p.tick) {
		return nil
	}
	return p.count(now)
}

// room is what a datagram of the log is read into. Most sandboxes are refused
// nothing, and need none.
func (p *PacketLog) room() []byte {
	if p.buffer == nil {
		p.buffer = make([]byte, 2*logBatch)
	}
	return p.buffer
}

// take reads one datagram of the log.
func (p *PacketLog) take(b []byte, now time.Time) error {
	return parseLog(b, func(l logged) {
		p.accounted[l.class]++
		l.packet.Interface, l.packet.First, l.packet.Last = p.name, now, now
		if first, ok := p.fold.add(l.class, l.packet); ok {
			p.ready = append(p.ready, first)
		}
		if soon := now.Add(countBusy); soon.Before(p.tick) {
			p.tick = soon
		}
	})
}

// drain takes what is in the log without waiting.
func (p *PacketLog) drain(now time.Time) error {
	for {
		n, err := p.log.receiveNow(p.room)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("packet log: %w", err)
		}
		if err := p.take(p.buffer[:n], now); err != nil {
			return err
		}
	}
}

// count reports what the counters showed a tick ago and the log has not told
// since: the log has it no longer.
func (p *PacketLog) count(now time.Time) error {
	p.tick = now.Add(countBusy)
	totals, err := readCounters(p.counters, p.device)
	if err != nil {
		return err
	}
	if err := p.drain(now); err != nil {
		return err
	}
	p.report(p.before, now)
	for c := range classes {
		if totals[c] < p.before[c] { // somebody loaded the rules anew
			p.accounted[c] = 0
		}
	}
	if totals == p.before && p.accounted == totals {
		p.tick, p.buffer = now.Add(countIdle), nil
	}
	p.before, p.lastTick = totals, now
	return nil
}

// report makes packets of the difference between totals and what is accounted
// for.
func (p *PacketLog) report(totals [classes]uint64, now time.Time) {
	for c := range classes {
		if totals[c] <= p.accounted[c] {
			continue
		}
		p.ready = append(p.ready, Packet{
			Interface: p.name, Verdict: c.verdict(), Proto: c.protocol(),
			Count: totals[c] - p.accounted[c], First: p.lastTick, Last: now,
		})
		p.accounted[c] = totals[c]
	}
}

// finish puts everything that was refused until now into ready.
func (p *PacketLog) finish() error {
	p.finished = true
	totals, err := readCounters(p.counters, p.device)
	if err != nil {
		return err
	}
	time.Sleep(logSettles)
	now := time.Now()
	if err := p.drain(now); err != nil {
		return err
	}
	p.report(totals, now)
	p.ready = append(p.ready, p.fold.flush()...)
	return nil
}
