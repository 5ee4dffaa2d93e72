//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// patience bounds each thing that is done.
const patience = 4 * time.Second

// waitLink waits for the network card.
func waitLink(name string) (netlink.Link, error) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		l, err := netlink.LinkByName(name)
		if err == nil || time.Now().After(end) {
			return l, err
		}
	}
}

func addAddress(link netlink.Link, address, gateway string) error {
	a, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		return err
	}
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	if a.IP.To4() == nil {
		_, all, _ = net.ParseCIDR("::/0")
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: all, Gw: net.ParseIP(gateway)})
}

// do does one thing.
func do(o order) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	switch o.Op {
	case "get":
		return get(ctx, o)
	case "resolve":
		var list []netip.Addr
		list, err = net.DefaultResolver.LookupNetIP(ctx, "ip", o.Name)
		return answer{Body: fmt.Sprint(list), Error: text(err)}
	case "tcp":
		var c net.Conn
		if c, err = new(net.Dialer).DialContext(ctx, "tcp", o.Address); err == nil {
			_ = c.SetDeadline(time.Now().Add(patience)) // shows in the read
			_, _ = io.WriteString(c, "SSH-2.0-guest\r\n")
			var b []byte
			b, err = io.ReadAll(io.LimitReader(c, 512))
			_ = c.Close()
			return answer{Body: string(b), Error: text(err)}
		}
	case "udp":
		err = udp(ctx, o.Address)
	case "raw":
		err = raw(o)
	case "frame":
		err = frame(o.Hex)
	case "clock":
		err = shift(o.Shift)
	default:
		err = errors.New("no such thing to do")
	}
	return answer{Error: text(err)}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// get makes one request with the trust that the machine was given.
func get(ctx context.Context, o order) answer {
	pem, err := os.ReadFile("/ca.pem")
	if err != nil {
		return answer{Error: err.Error()}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	var p http.Protocols
	p.SetHTTP1(!o.H2)
	p.SetHTTP2(o.H2)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: &p}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return answer{Error: err.Error()}
	}
	for k, v := range o.Headers {
		req.Header.Set(k, v)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	a := answer{Status: resp.StatusCode, Body: string(b), Headers: map[string]string{}, Error: text(err)}
	for k := range resp.Header {
		a.Headers[k] = resp.Header.Get(k)
	}
	return a
}

// udp sends datagrams until one is refused.
func udp(ctx context.Context, address string) error {
	c, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience)) // shows in the read
	if _, err := c.Write([]byte("guest")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 64))
	return err
}

// raw sends one packet of an IP protocol.
func raw(o order) error {
	c, err := net.Dial(fmt.Sprintf("ip:%d", o.Proto), o.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := hex.DecodeString(o.Hex)
	if err != nil {
		return err
	}
	_, err = c.Write(b)
	return err
}

// frame sends an Ethernet frame as it is.
func frame(text string) error {
	b, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	link, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: link.Index})
}

// shift sets the clock, as that of a machine that was resumed from a snapshot
// is off.
func shift(by string) error {
	d, err := time.ParseDuration(by)
	if err != nil {
		return err
	}
	tv := unix.NsecToTimeval(time.Now().Add(d).UnixNano())
	return unix.Settimeofday(&tv)
}
