package upstream

import (
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOwnAddressesAtOnce: what an interface gets or loses is known with the
// next look, and addresses that have not changed are not read again.
func TestOwnAddressesAtOnce(t *testing.T) {
	failed := make(chan string, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and the namespace with it
		failed <- ownAtOnce()
	}()
	if why := <-failed; why != "" {
		t.Error(why)
	}
}

func ownAtOnce() string {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err.Error()
	}
	added := netip.MustParseAddr("203.0.113.7")
	var own interfaces
	defer own.close()
	own.now()
	own.now() // what was under way when the watch began
	for _, step := range []struct {
		change string
		has    bool
	}{{"add", true}, {"del", false}, {"add", true}} {
		if out, err := exec.Command("ip", "address", step.change, added.String()+"/32", "dev", "lo").CombinedOutput(); err != nil {
			return err.Error() + ": " + string(out)
		}
		if now := own.now(); slices.Contains(now, added) != step.has {
			return "after " + step.change + " they are " + netipText(now)
		}
		read := own.until
		own.now()
		if own.until != read {
			return "read again without a change"
		}
	}
	own.close()
	read := own.until
	if own.now(); own.until == read {
		return "not read when changes are not told"
	}
	return ""
}

func netipText(list []netip.Addr) (s string) {
	for _, a := range list {
		s += " " + a.String()
	}
	return s
}

// BenchmarkOwnAddresses is the look at the gateway's own addresses before a
// connection.
func BenchmarkOwnAddresses(b *testing.B) {
	for _, told := range []bool{false, true} {
		name := "read"
		if told {
			name = "told"
		}
		b.Run(name, func(b *testing.B) {
			var own interfaces
			defer own.close()
			if !told {
				own.close()
			}
			own.now()
			for b.Loop() {
				own.now()
			}
		})
	}
}
