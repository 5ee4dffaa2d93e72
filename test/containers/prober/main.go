//go:build linux

// Command prober sends, from inside a container, one packet of each kind that
// is neither TCP nor DNS.
package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: prober IPv4 IPv6 [DATAGRAMS]")
		os.Exit(2)
	}
	if len(os.Args) == 4 {
		n, err := strconv.Atoi(os.Args[3])
		if err == nil {
			err = flood(os.Args[1], n)
		}
		end(err)
	}
	to4, to6 := netip.MustParseAddr(os.Args[1]), netip.MustParseAddr(os.Args[2])
	// Those that wait to be refused come first: the kernel sends a peer six
	// refusals at once, and then one a second.
	for _, probe := range []struct {
		name string
		send func() error
	}{
		{"quic", func() error { return quic(net.JoinHostPort(to4.String(), "443")) }},
		{"dot", func() error { return quic(net.JoinHostPort(to4.String(), "853")) }},
		{"sctp", func() error { return raw(to4, unix.IPPROTO_SCTP) }},
		{"gre", func() error { return raw(to4, unix.IPPROTO_GRE) }},
		{"esp", func() error { return raw(to4, unix.IPPROTO_ESP) }},
		{"proto-253", func() error { return raw(to4, 253) }},
		{"sctp6", func() error { return raw(to6, unix.IPPROTO_SCTP) }},
		{"fragment", func() error { return fragment(to4) }},
		{"large", func() error { return large(net.JoinHostPort(to4.String(), "4003")) }},
		{"extension", func() error { return raw(to6, unix.IPPROTO_DSTOPTS) }},
		{"multicast", func() error { return quic("239.1.2.3:5000") }},
	} {
		begun := time.Now()
		if err := probe.send(); err != nil {
			fmt.Printf("%s: %v\n", probe.name, err)
		} else {
			fmt.Printf("%s: sent, %d ms\n", probe.name, time.Since(begun).Milliseconds())
		}
	}
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func address(a netip.Addr) (int, unix.Sockaddr) {
	if a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}
}

// raw sends a packet of a protocol.
func raw(to netip.Addr, protocol int) error {
	domain, at := address(to)
	fd, err := unix.Socket(domain, unix.SOCK_RAW, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	payload := make([]byte, 24)
	if protocol == unix.IPPROTO_DSTOPTS {
		payload[0], payload[2], payload[3] = unix.IPPROTO_UDP, 1, 4 // one option of padding, then UDP
		binary.BigEndian.PutUint16(payload[8:], 4000)
		binary.BigEndian.PutUint16(payload[10:], 4001)
		binary.BigEndian.PutUint16(payload[12:], 16)
	}
	return unix.Sendto(fd, payload, 0, at)
}

// fragment sends the first fragment of a datagram. Where the container tracks
// connections, as on an engine's network, it waits there for the others.
func fragment(to netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	p := make([]byte, 44)
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[4:], 77)
	binary.BigEndian.PutUint16(p[6:], 0x2000) // more to come
	a := to.As4()
	copy(p[16:], a[:])
	binary.BigEndian.PutUint16(p[22:], 4002)
	_, at := address(to)
	return unix.Sendto(fd, p, 0, at)
}

// large sends a datagram that leaves in pieces where there is a link.
func large(to string) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write(make([]byte, 4000))
	return err
}

// quic sends a datagram and waits to be refused, as a client of HTTP/3 does.
func quic(to string) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{0xc0, 0, 0, 0, 1}); err != nil {
		return err
	}
	begun := time.Now()
	_ = c.SetReadDeadline(begun.Add(2 * time.Second))
	_, err = c.Read(make([]byte, 100))
	return fmt.Errorf("refused after %d ms: %w", time.Since(begun).Milliseconds(), err)
}

// flood sends n datagrams to a closed port.
func flood(to string, n int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	a := netip.MustParseAddr(to)
	at := &unix.SockaddrInet4{Addr: a.As4(), Port: 7777}
	for range n {
		for {
			// An error of the one before, reported now: this one was not sent.
			if err := unix.Sendto(fd, []byte("x"), 0, at); err == nil {
				break
			}
		}
	}
	return nil
}
