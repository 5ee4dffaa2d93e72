//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// layout says what the descriptors of a hand-over are, in their order: TCP
// listeners, DNS listeners, DNS datagram sockets, and at last the two netfilter
// sockets of the packet log.
type layout struct {
	TCP          int    `json:"tcp"`
	DNSListeners int    `json:"dns_listeners"`
	DNSPackets   int    `json:"dns_packets"`
	Interface    string `json:"interface"`
	Device       string `json:"device"` // whose counters the packet log reads
}

// len is how many descriptors l describes.
func (l layout) len() int { return l.TCP + l.DNSListeners + l.DNSPackets + 2 }

// filer is what every socket of package net can do.
type filer interface{ File() (*os.File, error) }

// files returns duplicates of every descriptor of s, to be sent to another
// process. The caller closes them; s stays open.
func (s *Sockets) files() ([]*os.File, layout, error) {
	files, err := s.Listening()
	if err != nil {
		return nil, layout{}, err
	}
	packets, err := duplicates([]filer{s.Packets.log, s.Packets.counters})
	if err != nil {
		closeFiles(files)
		return nil, layout{}, err
	}
	return append(files, packets...), layout{
		TCP:          len(s.TCP),
		DNSListeners: len(s.DNSListeners),
		DNSPackets:   len(s.DNSPackets),
		Interface:    s.Interface,
		Device:       s.Packets.device,
	}, nil
}

// socketsFromFiles makes Sockets of descriptors that files described as l. It
// takes the files over and closes them, also when it fails.
func socketsFromFiles(files []*os.File, l layout) (*Sockets, error) {
	defer closeFiles(files)
	if l.TCP < 0 || l.DNSListeners < 0 || l.DNSPackets < 0 || l.len() != len(files) {
		return nil, fmt.Errorf("hand-over: %d descriptors do not fit %+v", len(files), l)
	}
	s := &Sockets{Interface: l.Interface}
	if err := s.adopt(files, l); err != nil {
		return nil, errors.Join(fmt.Errorf("hand-over: %w", err), s.Close())
	}
	return s, nil
}

func (s *Sockets) adopt(files []*os.File, l layout) error {
	for i, f := range files[:l.TCP+l.DNSListeners] {
		listener, err := net.FileListener(f)
		if err != nil {
			return fmt.Errorf("listener: %w", err)
		}
		if i < l.TCP {
			s.TCP = append(s.TCP, listener)
		} else {
			s.DNSListeners = append(s.DNSListeners, listener)
		}
	}
	files = files[l.TCP+l.DNSListeners:]
	for _, f := range files[:l.DNSPackets] {
		c, err := newDNSConn(f)
		if err != nil {
			return fmt.Errorf("dns socket: %w", err)
		}
		s.DNSPackets = append(s.DNSPackets, c)
	}
	files = files[l.DNSPackets:]
	packets, err := netfilterFromFile(files[0])
	if err != nil {
		return fmt.Errorf("packet log: %w", err)
	}
	counters, err := netfilterFromFile(files[1])
	if err != nil {
		return errors.Join(fmt.Errorf("counters: %w", err), packets.Close())
	}
	s.Packets = newPacketLog(packets, counters, l.Interface, l.Device)
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
