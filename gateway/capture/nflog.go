//go:build linux

package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Attributes and commands of nfnetlink_log (linux/netfilter/nfnetlink_log.h).
const (
	nfulMessagePacket = 0
	nfulMessageConfig = 1

	nfulaHardwareAddress = 8
	nfulaPayload         = 9
	nfulaPrefix          = 10

	nfulaConfigCommand    = 1
	nfulaConfigMode       = 2
	nfulaConfigBufferSize = 3
	nfulaConfigTimeout    = 4
	nfulaConfigThreshold  = 5

	nfulCommandBind = 1
	nfulCopyPacket  = 2
)

const (
	// snapLength is how many bytes of a refused packet the kernel copies: IP
	// header, some extensions and the first bytes of transport.
	snapLength = 128
	// The kernel sends a batch of log messages when it holds logThreshold of
	// them or after logTimeout, in 10 ms.
	logThreshold = 64
	logTimeout   = 2
	// logBatch is the largest datagram the kernel sends, in bytes.
	logBatch = 16 << 10
	// logBuffer is the receive buffer in bytes, as far as net.core.rmem_max
	// allows. What does not fit is counted all the same.
	logBuffer = 4 << 20
)

// bindLog makes s receive what rules send to group. A group has one reader.
func bindLog(s *netfilterSocket, group uint16) error {
	var err error
	if cerr := s.raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, logBuffer) != nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, logBuffer)
		}
	}); cerr != nil || err != nil {
		return fmt.Errorf("packet log: receive buffer: %w", errors.Join(cerr, err))
	}
	err = configureLog(s, group, netlink.Attribute{Type: nfulaConfigCommand, Data: []byte{nfulCommandBind}})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("packet log: group %d: held by another process, or no CAP_NET_ADMIN: %w", group, err)
	}
	if err != nil {
		return fmt.Errorf("packet log: group %d: %w", group, err)
	}
	be32 := binary.BigEndian.AppendUint32
	err = configureLog(s, group,
		netlink.Attribute{Type: nfulaConfigMode, Data: append(be32(nil, snapLength), nfulCopyPacket, 0)},
		netlink.Attribute{Type: nfulaConfigBufferSize, Data: be32(nil, logBatch)},
		netlink.Attribute{Type: nfulaConfigTimeout, Data: be32(nil, logTimeout)},
		netlink.Attribute{Type: nfulaConfigThreshold, Data: be32(nil, logThreshold)})
	if err != nil {
		return fmt.Errorf("packet log: group %d: mode: %w", group, err)
	}
	return nil
}

func configureLog(s *netfilterSocket, group uint16, attributes ...netlink.Attribute) error {
	b, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		return err
	}
	kind := netfilterType(unix.NFNL_SUBSYS_ULOG, nfulMessageConfig)
	_, err = s.request(kind, netlink.Acknowledge, append(nfgenmsg(unix.AF_UNSPEC, group), b...))
	return err
}

// logged is one message of the log: a packet and the class it was counted in.
type logged struct {
	class  class
	packet Packet
}

// parseLog calls yield for every message of one datagram of the log.
func parseLog(b []byte, yield func(logged)) error {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return fmt.Errorf("packet log: %w", err)
	}
	for _, m := range messages {
		if m.Header.Type != netfilterType(unix.NFNL_SUBSYS_ULOG, nfulMessagePacket) || len(m.Data) < nfgenmsgLen {
			continue
		}
		if l, ok := parseLogged(m.Data[nfgenmsgLen:]); ok {
			yield(l)
		}
	}
	return nil
}

func parseLogged(b []byte) (logged, bool) {
	attributes, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return logged{}, false
	}
	l := logged{packet: Packet{Count: 1}}
	known := false
	for attributes.Next() {
		switch attributes.Type() {
		case nfulaPrefix:
			l.class, known = classNamed(attributes.String())
		case nfulaPayload:
			// A packet too short to decode was refused all the same: it is
			// reported by its class, without addresses.
			l.packet.decode(attributes.Bytes())
		case nfulaHardwareAddress:
			l.packet.MAC = hardwareAddress(attributes.Bytes())
		}
	}
	if attributes.Err() != nil || !known {
		return logged{}, false
	}
	l.packet.Verdict = l.class.verdict()
	return l, true
}

// hardwareAddress reads struct nfulnl_msg_packet_hw: a length in 16 bits,
// padding, the address.
func hardwareAddress(b []byte) string {
	const header, ethernet = 4, 6
	if len(b) < header+ethernet || binary.BigEndian.Uint16(b) != ethernet {
		return ""
	}
	mac := [ethernet]byte(b[header:])
	if mac == [ethernet]byte{} {
		return ""
	}
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5])
}
