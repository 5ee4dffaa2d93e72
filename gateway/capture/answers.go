//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Answers to addresses that a sandbox made up wait in the kernel until it has
// asked for those in vain, some three seconds. They may take up neither the
// socket that all answers of the interface go through nor much memory: to each
// of at most sourcesMax addresses a little waits, and the socket has room for
// that twice.
const (
	// waitingMax is what waits for one address, in bytes as the kernel counts
	// them: some twenty answers, of which the oldest goes when there are more.
	waitingMax  = 32 << 10
	answersRoom = sourcesMax * waitingMax // SO_SNDBUF, which the kernel doubles
)

// makeRoomForAnswers does that for the DNS socket of an interface, and returns
// its room in bytes. In a user namespace the kernel gives no more than
// net.core.wmem_max.
func makeRoomForAnswers(socket *os.File) (room int, err error) {
	raw, err := socket.SyscallConn() // Fd would make it block for every process that has it
	if err != nil {
		return 0, err
	}
	err = onSocket(raw, func(fd int) error {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, answersRoom)
		if errors.Is(err, unix.EPERM) {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, answersRoom)
		}
		if err == nil {
			room, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		}
		return os.NewSyscallError("SO_SNDBUF", err)
	})
	return room, err
}

// limitWaiting makes waitingMax the most that waits for one address behind link,
// or less, so that room is enough for sourcesMax of them.
func limitWaiting(link netlink.Link, families []family, room int) error {
	most := uint32(min(waitingMax, room/sourcesMax))
	for _, f := range families {
		table := "arp_cache"
		if f.domain == unix.AF_INET6 {
			table = "ndisc_cache"
		}
		// struct ndtmsg and attributes of linux/neighbour.h.
		const name, parameters, index, queueBytes = 1, 6, 1, 16
		of := nl.NewRtAttr(parameters, nil)
		of.AddRtAttr(index, nl.Uint32Attr(uint32(link.Attrs().Index)))
		of.AddRtAttr(queueBytes, nl.Uint32Attr(most))
		r := nl.NewNetlinkRequest(unix.RTM_SETNEIGHTBL, unix.NLM_F_ACK)
		r.AddRawData(slices.Concat([]byte{byte(f.domain), 0, 0, 0}, nl.NewRtAttr(name, nl.ZeroTerminated(table)).Serialize(), of.Serialize()))
		_, err := r.Execute(unix.NETLINK_ROUTE, 0)
		if err != nil && !errors.Is(err, unix.ENOENT) { // the link does not speak that version
			return fmt.Errorf("%s of %s: %w", table, link.Attrs().Name, err)
		}
	}
	return nil
}
