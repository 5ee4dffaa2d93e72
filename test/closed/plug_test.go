//go:build linux

package closed_test

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/test/lab"
)

// guestMAC is the Ethernet address of the guest's card.
const guestMAC = "02:5a:00:00:96:02"

// plug makes a tap in a namespace, and a card eth0 of a guest whose frames go to
// it and come from it, as a machine's monitor does.
func plug(t *testing.T, host *lab.Namespace, name string, guest *lab.Namespace) {
	t.Helper()
	ends := []*os.File{open(t, host, name), open(t, guest, "eth0")}
	ip(t, guest, "link set eth0 address "+guestMAC+" txqueuelen 30000")
	var pumps sync.WaitGroup
	for i, from := range ends {
		to := ends[1-i]
		pumps.Go(func() {
			b := make([]byte, 1<<16)
			for {
				n, err := from.Read(b)
				if err != nil {
					return // closed
				}
				_, _ = to.Write(b[:n]) // the other end may be down
			}
		})
	}
	t.Cleanup(func() {
		for _, f := range ends {
			_ = f.Close() // nothing was buffered
		}
		pumps.Wait()
	})
}

// open makes a tap that lives as long as its file is open.
func open(t *testing.T, ns *lab.Namespace, name string) *os.File {
	t.Helper()
	var f *os.File
	must(t, ns.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		r, err := unix.NewIfreq(name)
		if err == nil {
			r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
		}
		if err != nil {
			_ = unix.Close(fd) // it is not used
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		return nil
	}))
	return f
}
