//go:build linux

package load

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// inFlight is how many questions one socket has open.
const inFlight = 16

// onceEach: each name once, on so many sockets.
func (w *worker) onceEach(j Job) func() {
	var next atomic.Int64
	return func() {
		w.timed(j.Conns, func(int) {
			for i := int(next.Add(1) - 1); i < len(j.Names); i = int(next.Add(1) - 1) {
				t := time.Now()
				if _, err := w.pool.lookUp(j.Names[i], 0); err != nil {
					w.fail(err)
					continue
				}
				w.add([]int64{int64(time.Since(t))}, 0, nil)
			}
		})
	}
}

// questions: as many as are answered, over UDP, on so many sockets. Each name
// has been asked for once before.
func (w *worker) questions(j Job) func() {
	for _, name := range j.Names {
		var err error
		for range lookups {
			if _, err = w.pool.lookUp(name, 0); err == nil {
				break
			}
		}
		if err != nil {
			return func() { w.fail(err) }
		}
	}
	var wires [][]byte
	for _, name := range j.Names {
		m := new(dns.Msg)
		m.SetQuestion(name+".", dns.TypeA)
		b, err := m.Pack()
		if err != nil {
			return func() { w.fail(err) }
		}
		wires = append(wires, b)
	}
	return func() {
		end := time.Now().Add(j.Time)
		w.timed(j.Conns, func(i int) {
			q := &asker{wires: wires, turn: i * len(wires) / j.Conns, end: end}
			err := q.run(j.Target.DNS)
			w.add(q.lat, q.errs, err)
		})
	}
}

// asker is one socket.
type asker struct {
	c     net.Conn
	wires [][]byte
	turn  int
	sent  [inFlight]time.Time
	out   []byte
	lat   []int64
	errs  int
	end   time.Time
}

func (a *asker) send(id int) {
	a.turn++
	a.out = append(a.out[:0], a.wires[a.turn%len(a.wires)]...)
	a.out[0], a.out[1] = 0, byte(id)
	a.sent[id] = time.Now()
	_, _ = a.c.Write(a.out) // what is lost is asked again
}

func (a *asker) run(address string) (last error) {
	c, err := net.Dial("udp", address)
	if err != nil {
		a.errs++
		return err
	}
	defer c.Close()
	a.c = c
	in := make([]byte, 2048)
	for id := range inFlight {
		a.send(id)
	}
	for i := 0; a.errs < 100; i++ {
		if i%64 == 0 {
			if err := c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
				return err
			}
		}
		n, err := c.Read(in)
		now := time.Now()
		if err != nil { // datagrams were lost
			a.errs, last, i = a.errs+1, err, -1
			for id := range inFlight {
				a.send(id)
			}
			continue
		}
		id := int(in[1])
		if n < 12 || id >= inFlight {
			continue
		}
		if in[3]&15 != 0 || in[7] == 0 {
			a.errs, last = a.errs+1, fmt.Errorf("response code %d, %d answers", in[3]&15, in[7])
		} else {
			a.lat = append(a.lat, int64(now.Sub(a.sent[id])))
		}
		if now.After(a.end) {
			break
		}
		a.send(id)
	}
	return last
}
