package gateway

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// deadlines notes the deadlines of its writes.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func (d *deadlines) Write(p []byte) (int, error) { return len(p), nil }

// TestMeterBoundsWrites: each write has nearly all of the time that it may take,
// after one that somebody else has bounded as well.
func TestMeterBoundsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 16 * time.Minute
		under := &deadlines{}
		m := newMeter(under)
		m.stall = stall
		write := func() time.Duration {
			_, err := m.Write([]byte("x"))
			must(t, err)
			return time.Until(under.set[len(under.set)-1])
		}
		for range 1000 {
			if left := write(); left < stall-time.Minute || left > stall {
				t.Fatalf("a write has %v, of %v", left, stall)
			}
			time.Sleep(time.Second)
		}
		if n := len(under.set); n > 20 {
			t.Errorf("%d deadlines in 1000 writes", n)
		}
		must(t, m.SetWriteDeadline(past()))
		if left := write(); left != stall {
			t.Errorf("after a deadline of somebody else a write has %v, want %v", left, stall)
		}
	})
}
