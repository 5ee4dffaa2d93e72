package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// tcpProbe connects and sends. It holds when nothing comes back but, from
// the gateway, a refusal or the end.
func tcpProbe(title, addr string, port int) probeAttempt {
	return func(ctx context.Context) probeResult {
		r := probeResult{Promise: "P1", Title: title}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
		if err != nil {
			r.Held, r.Saw, r.Dst = true, reasonOf(err), addr
			return r
		}
		defer c.Close()
		r.Source = uint16(c.LocalAddr().(*net.TCPAddr).Port)
		_ = c.SetDeadline(time.Now().Add(probeWait / 2)) // errors show in the read
		_, _ = io.WriteString(c, "SSH-2.0-probe\r\n")
		b, err := io.ReadAll(io.LimitReader(c, 512))
		r.Held, r.Saw = len(b) == 0, reasonOf(err)
		if len(b) > 0 {
			r.Saw = fmt.Sprintf("%d bytes came back", len(b))
		}
		return r
	}
}

// udpProbe sends a datagram and waits to be refused.
func udpProbe(title, addr string, port int) probeAttempt {
	return func(ctx context.Context) probeResult {
		r := probeResult{Promise: "P1", Title: title, Dst: addr, Port: uint16(port)}
		var d net.Dialer
		c, err := d.DialContext(ctx, "udp", net.JoinHostPort(addr, strconv.Itoa(port)))
		if err != nil {
			r.Held, r.Saw, r.Dst = true, reasonOf(err), ""
			return r
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second)) // errors show in the read
		_, err = c.Write([]byte("probe"))
		if err == nil {
			var n int
			n, err = c.Read(make([]byte, 64))
			r.Held = n == 0
		} else {
			r.Held = true
		}
		r.Saw = reasonOf(err)
		return r
	}
}

// icmpProbe sends an echo request, where the sandbox can.
func icmpProbe(ctx context.Context) probeResult {
	r := probeResult{Promise: "P1", Title: "ICMP", Held: true}
	var d net.Dialer
	c, err := d.DialContext(ctx, "ip4:icmp", probeAddr4)
	if err != nil {
		r.Saw = reasonOf(err)
		return r
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second)) // shows in the read
	if _, err = c.Write([]byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}); err != nil {
		r.Saw = reasonOf(err)
		return r
	}
	r.Dst = probeAddr4
	b := make([]byte, 128)
	for err == nil {
		var n int
		n, err = c.Read(b)
		if n > 0 && b[0] == 0 { // an echo reply
			r.Held, r.Saw = false, "an answer came back"
			return r
		}
	}
	r.Saw = reasonOf(err)
	return r
}

// resolverAt asks one resolver.
func resolverAt(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort(address, "53"))
	}}
}

// dnsProbe asks for a name that carries data. It holds when no address comes
// but one of the gateway's.
func dnsProbe(title, resolver string) probeAttempt {
	return func(ctx context.Context) probeResult {
		name := fmt.Sprintf("c2VjcmV0-%d.%s", time.Now().UnixNano(), probeName)
		r := probeResult{Promise: "P1", Title: title, Name: strings.ToLower(name)}
		res := net.DefaultResolver
		if resolver != "" {
			res = resolverAt(resolver)
		}
		addrs, err := res.LookupNetIP(ctx, "ip4", name)
		r.Held, r.Saw = true, "not found"
		for _, a := range addrs {
			r.Saw = "answered " + a.String()
			b := a.Unmap().As4()
			r.Held = r.Held && b[0] == 198 && b[1]&^1 == 18
		}
		if err != nil {
			var de *net.DNSError
			r.Held = errors.As(err, &de) && !de.IsTimeout
			r.Saw = "refused"
		}
		return r
	}
}

// probeDoH is the resolver of dohProbe. Every probe goes to the same.
const probeDoH = "doh." + probeName

// dohProbe asks a resolver over HTTPS.
func dohProbe(ctx context.Context) probeResult {
	name := probeDoH
	r := probeResult{Promise: "P1", Title: "DNS over HTTPS", Name: name}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/dns-query?name=example.test", nil)
	if err != nil {
		r.Saw = err.Error()
		return r
	}
	resp, err := client.Do(req)
	if err != nil {
		r.Held, r.Saw = true, reasonOf(err)
		return r
	}
	defer resp.Body.Close()
	r.Saw = fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("X-Sallyport-Reason"))
	r.Held = resp.Header.Get("X-Sallyport-Reason") != ""
	return r
}

// ownPortsProbe looks for something of the gateway besides its files.
func ownPortsProbe(ctx context.Context) probeResult {
	r := probeResult{Promise: "P1", Title: "ports of the gateway itself", Held: true, Saw: "refused"}
	for _, port := range []string{"22", "9090", "8080", "15001"} {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("sallyport.internal", port))
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c, "GET /metrics HTTP/1.0\r\n\r\n")
		b, _ := io.ReadAll(io.LimitReader(c, 512))
		_ = c.Close()
		if len(b) > 0 && !strings.Contains(string(b), "X-Sallyport-Reason") {
			r.Held, r.Saw = false, "port "+port+" answers"
		}
	}
	return r
}
