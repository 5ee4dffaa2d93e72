package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// probeProxy is an explicit proxy that the attempts are made through.
type probeProxy struct {
	Address  string `json:"address"`
	User     string `json:"user"`
	Password string `json:"password"`
}

func (p probeProxy) credential() string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(p.User+":"+p.Password)) + "\r\n"
}

// reach says whether anything listens at the proxy's address.
func (p probeProxy) reach() error {
	c, err := net.DialTimeout("tcp", p.Address, probeWait)
	if err != nil {
		return &exit{code: exitFailed, err: fmt.Errorf("proxy %s:%s; nothing was tried", p.Address, reasonOf(err)),
			hint: "--proxy names address:port of a capture with listen, while its daemon runs"}
	}
	return c.Close()
}

// dial opens a tunnel by CONNECT. The connection is returned also when there
// is none, with an error that says what the proxy answered.
func (p probeProxy) dial(ctx context.Context, target, credential string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(probeWait / 2)) // shows in the read
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, credential)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return c, err
	}
	if resp.StatusCode != http.StatusOK {
		return c, fmt.Errorf("proxy: %d %s", resp.StatusCode, resp.Header.Get("X-Sallyport-Reason"))
	}
	return c, nil
}

// proxyAttempts are those that can be made through a proxy. What its client
// can do without it is not the gateway's to say.
func proxyAttempts(p probePlan) []probeAttempt {
	x := *p.Proxy
	list := []probeAttempt{
		connectProbe(x, "P1", "CONNECT to a host that is not allowed", probeName+":443", x.credential()),
		connectProbe(x, "P1", "CONNECT to an address", probeAddr4+":443", x.credential()),
		connectProbe(x, "P1", "CONNECT to an IPv6 address", "["+probeAddr6+"]:443", x.credential()),
		connectProbe(x, "P1", "CONNECT to cloud metadata", probeMeta+":80", x.credential()),
		connectProbe(x, "P1", "CONNECT to the proxy itself", x.Address, x.credential()),
		connectProbe(x, "P1", "CONNECT with brackets round a name", "["+probeName+"]:443", x.credential()),
		connectProbe(x, "P1", "CONNECT without a credential", probeName+":443", ""),
		connectProbe(x, "P1", "CONNECT with a wrong credential", probeName+":443", probeProxy{User: x.User, Password: "wrong"}.credential()),
		socksProbe(x, "SOCKS5 to a host that is not allowed", probeName, 1),
		socksProbe(x, "SOCKS5 to an address", probeAddr4, 1),
		socksProbe(x, "SOCKS5 for UDP", probeName, 3),
		plainProbe(x, "plain request to a host that is not allowed", "http://"+probeName+"/", probeName),
		plainProbe(x, "plain request with two names", "http://"+probeName+"/", "other."+probeName),
		plainProbe(x, "plain request for an HTTPS URL", "https://"+probeName+"/", probeName),
	}
	if p.Host != "" {
		list = append(list, connectProbe(x, "P1", "CONNECT to an allowed host, port 22", net.JoinHostPort(p.Host, "22"), x.credential()),
			connectProbe(x, "P1", "CONNECT to an allowed host, DNS over TLS", net.JoinHostPort(p.Host, "853"), x.credential()))
		list = append(list, frontProbes(p)...)
		list = append(list, frontProbe(p, "CONNECT inside a tunnel", "CONNECT "+probeName+":443 HTTP/1.1\r\nHost: "+probeName+":443\r\n\r\n", p.Host))
	}
	if p.Other != "" && p.Secret != "" {
		list = append(list, leakProbe(p))
	}
	return list
}

// seen completes a result by what came back on a connection to the proxy.
// Without one nothing was tried, and nothing held.
func (r probeResult) seen(c net.Conn, err error) probeResult {
	r.Saw = reasonOf(err)
	r.Held = err != nil && c != nil
	if c != nil {
		r.Source = uint16(c.LocalAddr().(*net.TCPAddr).Port)
		_ = c.Close() // the attempt is over
	}
	return r
}

func connectProbe(x probeProxy, promise, title, target, credential string) probeAttempt {
	return func(ctx context.Context) probeResult {
		c, err := x.dial(ctx, target, credential)
		if err == nil {
			return probeResult{Promise: promise, Title: title}.seen(c, nil)
		}
		return probeResult{Promise: promise, Title: title}.seen(c, err)
	}
}

// socksProbe asks by SOCKS5 (RFC 1928), with the credential.
func socksProbe(x probeProxy, title, host string, command byte) probeAttempt {
	return func(ctx context.Context) probeResult {
		r := probeResult{Promise: "P1", Title: title}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", x.Address)
		if err != nil {
			return r.seen(nil, err)
		}
		_ = c.SetDeadline(time.Now().Add(probeWait / 2)) // shows in the read
		b := []byte{5, 1, 2, 1, byte(len(x.User))}
		b = append(append(append(b, x.User...), byte(len(x.Password))), x.Password...)
		if a, err := netip.ParseAddr(host); err == nil {
			b = append(append(b, 5, command, 0, 1), a.AsSlice()...)
		} else {
			b = append(append(b, 5, command, 0, 3, byte(len(host))), host...)
		}
		_, _ = c.Write(append(b, 1, 0xbb)) // shows in the read
		answer := make([]byte, 6)
		if _, err := io.ReadFull(c, answer); err != nil {
			return r.seen(c, err)
		}
		if answer[5] == 0 {
			return r.seen(c, nil)
		}
		return r.seen(c, fmt.Errorf("proxy: SOCKS5 answer %d", answer[5]))
	}
}

// plainProbe sends one request with an absolute target.
func plainProbe(x probeProxy, title, target, host string) probeAttempt {
	return func(ctx context.Context) probeResult {
		r := probeResult{Promise: "P1", Title: title}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", x.Address)
		if err != nil {
			return r.seen(nil, err)
		}
		_ = c.SetDeadline(time.Now().Add(probeWait / 2)) // shows in the read
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: sallyport-probe\r\n%sConnection: close\r\n\r\n", target, host, x.credential())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return r.seen(c, err)
		}
		if reason := resp.Header.Get("X-Sallyport-Reason"); reason != "" {
			return r.seen(c, fmt.Errorf("proxy: %d %s", resp.StatusCode, reason))
		}
		r.Saw = strings.TrimSpace("status " + strconv.Itoa(resp.StatusCode))
		_ = c.Close() // the attempt is over
		return r
	}
}
