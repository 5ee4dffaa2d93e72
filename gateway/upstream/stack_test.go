package upstream

import (
	"runtime/debug"
	"testing"
	"unsafe"
)

// TestStackGrowsAtOnce: once it has grown, what fits does not move it again.
func TestStackGrowsAtOnce(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection takes back what is not used
	for name, test := range map[string]struct {
		grow func()
		use  func(at int) byte
	}{
		"8 KiB":  {GrowStack8K, grow8},
		"16 KiB": {GrowStack16K, grow16},
		"32 KiB": {growStack32K, grow32},
	} {
		moved := make(chan [2]bool)
		go func() {
			var mark byte
			at := func() uintptr { return uintptr(unsafe.Pointer(&mark)) }
			small := at()
			test.grow()
			grown := at()
			test.use(1)
			moved <- [2]bool{small != grown, grown != at()}
		}()
		if got := <-moved; got != [2]bool{true, false} {
			t.Errorf("%s: moved by growing and by use: %v", name, got)
		}
	}
}
