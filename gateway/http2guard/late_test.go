package http2guard

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLate: what does not come whole in time ends the connection, however
// little of it comes every second, and what does come whole ends nothing.
func TestLate(t *testing.T) {
	const most = 30 * time.Second
	const sound = "\x00\x00\x0d\x01\x04\x00\x00\x00\x01\x82\x87\x84\x41\x08a.test:1" // GET https / a.test:1
	slow := strings.Split(strings.Repeat("\x82", 100), "")
	for name, tt := range map[string]struct {
		pieces []string // one a second
		detail string   // of the fault; "": none
		ends   bool
	}{
		"part of a frame's head":  {[]string{"\x00\x00"}, "a frame did not come whole in time", true},
		"part of a HEADERS frame": {append([]string{"\x00\x40\x00\x01\x05\x00\x00\x00\x01"}, slow...), "the request head did not come in time", true},
		"no END_HEADERS":          {[]string{"\x00\x00\x01\x01\x01\x00\x00\x00\x01\x82"}, "the request head did not come in time", true},
		"CONTINUATION for ever": {append([]string{"\x00\x00\x01\x01\x01\x00\x00\x00\x01\x82"},
			strings.SplitAfter(strings.Repeat("\x00\x00\x01\x09\x00\x00\x00\x00\x01\x82|", 100), "|")...), "the request head did not come in time", true},
		"part of SETTINGS":     {[]string{"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00"}, "a frame did not come whole in time", true},
		"trailers":             {[]string{sound, "\x00\x00\x09\x01\x05\x00\x00\x00\x01\x82"}, "", true},
		"part of a body":       {[]string{sound, "\x00\x00\x09\x00\x00\x00\x00\x00\x01a"}, "", false},
		"a body by the byte":   {append([]string{sound, "\x00\x00\xff\x00\x00\x00\x00\x00\x01"}, slow...), "", false},
		"a sound head, slowly": {strings.Split(sound, ""), "", false},
		"settings in pieces":   {strings.Split(strings.Repeat("\x00\x00\x00\x04\x01\x00\x00\x00\x00", 50), ""), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var faults []Fault
				g, ended := New(1<<14, func(f Fault) error { faults = append(faults, f); return nil }), 0
				g.Bound(most, func() { ended++ })
				for _, p := range tt.pieces {
					if _, err := g.Take([]byte(strings.TrimSuffix(p, "|"))); err != nil {
						break
					}
					time.Sleep(time.Second)
				}
				time.Sleep(2 * most)
				synctest.Wait()
				if (ended == 1) != tt.ends || ended > 1 {
					t.Errorf("ended %d times", ended)
				}
				if _, err := g.Take([]byte{0}); tt.ends && err == nil {
					t.Error("it takes more")
				}
				told := ""
				for _, f := range faults {
					told += f.Detail
				}
				if told != tt.detail {
					t.Errorf("faults %+v", faults)
				}
				_ = g.End()
				if n := len(faults); n > 1 {
					t.Errorf("%d faults", n)
				}
			})
		})
	}
}
