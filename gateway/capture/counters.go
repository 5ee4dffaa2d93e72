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

// counterName is the name of the nft counter of a class of one interface.
func counterName(device string, c class) string { return device + "_" + c.String() }

// readCounters reads how many packets of every class were refused at device
// since its rules were first loaded. Counters that are gone, because somebody
// removed the table, read as 0.
func readCounters(s *netfilterSocket, device string) (totals [classes]uint64, err error) {
	for c := range classes {
		if totals[c], err = readCounter(s, counterName(device, c)); err != nil {
			return totals, fmt.Errorf("packet counter %s: %w", counterName(device, c), err)
		}
	}
	return totals, nil
}

func readCounter(s *netfilterSocket, name string) (uint64, error) {
	b, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_OBJ_TABLE, Data: []byte(tableName + "\x00")},
		{Type: unix.NFTA_OBJ_NAME, Data: []byte(name + "\x00")},
		{Type: unix.NFTA_OBJ_TYPE, Data: binary.BigEndian.AppendUint32(nil, unix.NFT_OBJECT_COUNTER)},
	})
	if err != nil {
		return 0, err
	}
	kind := netfilterType(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETOBJ)
	answer, err := s.request(kind, 0, append(nfgenmsg(unix.NFPROTO_INET, 0), b...))
	if errors.Is(err, syscall.ENOENT) {
		return 0, nil
	}
	if err != nil || len(answer) < nfgenmsgLen {
		return 0, err
	}
	return counterPackets(answer[nfgenmsgLen:])
}

func counterPackets(b []byte) (packets uint64, err error) {
	object, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return 0, err
	}
	object.ByteOrder = binary.BigEndian
	for object.Next() {
		if object.Type() != unix.NFTA_OBJ_DATA {
			continue
		}
		object.Nested(func(data *netlink.AttributeDecoder) error {
			for data.Next() {
				if data.Type() == unix.NFTA_COUNTER_PACKETS {
					packets = data.Uint64()
				}
			}
			return nil
		})
	}
	return packets, object.Err()
}
