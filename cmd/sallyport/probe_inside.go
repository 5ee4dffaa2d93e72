package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport/audit"
)

// probePlan is what the probe inside the sandbox is told.
type probePlan struct {
	Host    string   `json:"host"` // an HTTPS host that policy allows; "" if there is none
	Port    uint16   `json:"port"`
	Other   string   `json:"other"`   // an allowed host that Secret is not approved for; "" if none
	Secret  string   `json:"secret"`  // environment variable of a secret; "" if none
	Hidden  []string `json:"hidden"`  // paths that must not be readable
	Sockets bool     `json:"sockets"` // the sandbox has a file system of its own: no socket of the host may answer

	// Processes says that the sandbox has a pid namespace of its own. A network
	// namespace alone keeps nobody from the host's processes.
	Processes bool `json:"processes"`

	Plain     string      `json:"plain"`      // a host that policy allows without TLS; "" if there is none
	PlainPort uint16      `json:"plain_port"` // of it
	Peer      string      `json:"peer"`       // an address of another sandbox
	Resolver  string      `json:"resolver"`   // to ask; "" is the sandbox's own
	Value     string      `json:"value"`      // of the variable of Secret, where the sandbox was not given it
	Proxy     *probeProxy `json:"proxy,omitempty"`
}

// placeholder is what the sandbox has in the place of the secret.
func (p probePlan) placeholder() string {
	if p.Value != "" {
		return p.Value
	}
	return os.Getenv(p.Secret)
}

// probeResult is one attempt from inside.
type probeResult struct {
	Promise string `json:"promise"`
	Title   string `json:"title"`
	Held    bool   `json:"held"`
	Saw     string `json:"saw"`
	// What the record of the attempt is found by; empty when none is due.
	Source uint16 `json:"source,omitempty"` // port of the connection's near end
	Name   string `json:"name,omitempty"`   // that was asked for
	Dst    string `json:"dst,omitempty"`    // of a packet
	Port   uint16 `json:"port,omitempty"`   // of a packet's destination
	Secret string `json:"secret,omitempty"` // whose variable Saw is
}

func probeInsideCommand() *cobra.Command {
	var plan string
	cmd := &cobra.Command{Use: "probe-inside", Hidden: true, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		var p probePlan
		if err := json.Unmarshal([]byte(plan), &p); err != nil {
			return err
		}
		if p.Resolver != "" {
			net.DefaultResolver = resolverAt(p.Resolver)
		}
		out := json.NewEncoder(os.Stdout)
		for _, attempt := range probeAttempts(p) {
			ctx, cancel := context.WithTimeout(context.Background(), probeWait)
			r := attempt(ctx)
			cancel()
			if err := out.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}}
	cmd.Flags().StringVar(&plan, "plan", "{}", "")
	return cmd
}

// probeWait bounds one attempt.
const probeWait = 5 * time.Second

// Where the probe goes: documentation addresses (RFC 5737, RFC 3849), the
// metadata address of clouds, and names that nobody has (RFC 6761).
const (
	probeAddr4 = "192.0.2.77"
	probeAddr6 = "2001:db8::77"
	probeMeta  = "169.254.169.254"
	probeName  = "probe.sallyport.test"
)

// probeAgent is what the probe's requests say they come from.
const probeAgent = "sallyport-probe"

// byProbe says whether a record is of an attempt of the probe: by a name or an
// address that only it goes to, or by what its request says. A sandbox that says
// so too has its attempt left out of what is suggested, and of nothing else.
func byProbe(e *audit.Event) bool {
	return e.Host == probeName || strings.HasSuffix(e.Host, "."+probeName) || e.Host == probeAddr4 || e.Host == probeAddr6 ||
		e.HTTP != nil && e.HTTP.UserAgent == probeAgent
}

type probeAttempt func(context.Context) probeResult

func probeAttempts(p probePlan) []probeAttempt {
	if p.Proxy != nil {
		return proxyAttempts(p)
	}
	list := []probeAttempt{
		tcpProbe("TCP to an address, port 22", probeAddr4, 22),
		tcpProbe("TCP to an address, port 6379", probeAddr4, 6379),
		tcpProbe("TCP to an IPv6 address", probeAddr6, 443),
		tcpProbe("DNS over TLS", probeAddr4, 853),
		tcpProbe("cloud metadata", probeMeta, 80),
		tcpProbe("an address of another sandbox", p.Peer, 80),
		icmpProbe,
		udpProbe("UDP (QUIC)", probeAddr4, 443),
		udpProbe("UDP (NTP)", probeAddr4, 123),
		udpProbe("UDP over IPv6", probeAddr6, 4433),
		dnsProbe("data in a name, to the resolver", ""),
		dnsProbe("data in a name, to another resolver", probeAddr4),
		dohProbe,
		ownPortsProbe,
	}
	if p.Host != "" {
		list = append(list, frontProbes(p)...)
	}
	if p.Plain != "" && p.Secret != "" {
		list = append(list, plaintextProbe(p))
	}
	if p.Secret != "" {
		if p.Value == "" {
			list = append(list, environmentProbe(p.Secret))
		}
		if p.Other != "" {
			list = append(list, leakProbe(p))
		}
	}
	for _, path := range p.Hidden {
		list = append(list, fileProbe(path))
	}
	if p.Processes {
		list = append(list, processProbe)
	}
	if p.Sockets {
		list = append(list, socketProbe)
	}
	return list
}

// frontProbe sends one request on a TLS connection and expects the gateway
// to refuse it.
func frontProbe(p probePlan, title, request, sni string) probeAttempt {
	return func(ctx context.Context) probeResult {
		r := probeResult{Promise: "P2", Title: title}
		raw, err := p.dial(ctx, net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))))
		if err != nil {
			r.Saw = reasonOf(err)
			return r
		}
		defer raw.Close()
		r.Source = uint16(raw.LocalAddr().(*net.TCPAddr).Port)
		_ = raw.SetDeadline(time.Now().Add(probeWait / 2))
		c := tls.Client(raw, &tls.Config{ServerName: sni, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		_, err = io.WriteString(c, request)
		if err != nil {
			r.Held, r.Saw = true, reasonOf(err)
			return r
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			r.Held, r.Saw = true, reasonOf(err)
			return r
		}
		defer resp.Body.Close()
		r.Saw = fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("X-Sallyport-Reason"))
		r.Held = resp.Header.Get("X-Sallyport-Reason") != ""
		return r
	}
}

// frontProbes are those that say one name and mean another.
func frontProbes(p probePlan) []probeAttempt {
	return []probeAttempt{
		frontProbe(p, "Host of another name on an allowed connection", "GET / HTTP/1.1\r\nHost: "+probeName+"\r\nUser-Agent: sallyport-probe\r\nConnection: close\r\n\r\n", p.Host),
		frontProbe(p, "absolute target of another name", "GET https://"+probeName+"/ HTTP/1.1\r\nHost: "+p.Host+"\r\nUser-Agent: sallyport-probe\r\nConnection: close\r\n\r\n", p.Host),
		frontProbe(p, "server name of another host", "GET / HTTP/1.1\r\nHost: "+p.Host+"\r\nUser-Agent: sallyport-probe\r\nConnection: close\r\n\r\n", probeName),
		frontProbe(p, "request with two lengths", "POST / HTTP/1.1\r\nHost: "+p.Host+"\r\nUser-Agent: sallyport-probe\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", p.Host),
	}
}

// dial connects as a client of the sandbox does.
func (p probePlan) dial(ctx context.Context, target string) (net.Conn, error) {
	if p.Proxy != nil {
		return p.Proxy.dial(ctx, target, p.Proxy.credential())
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", target)
}

// plaintextProbe sends a placeholder without TLS.
func plaintextProbe(p probePlan) probeAttempt {
	return func(ctx context.Context) probeResult {
		r := probeResult{Promise: "P4", Title: "placeholder over plain HTTP"}
		c, err := p.dial(ctx, net.JoinHostPort(p.Plain, strconv.Itoa(int(p.PlainPort))))
		if err != nil {
			r.Saw = reasonOf(err)
			return r
		}
		defer c.Close()
		r.Source = uint16(c.LocalAddr().(*net.TCPAddr).Port)
		_ = c.SetDeadline(time.Now().Add(probeWait / 2)) // errors show in the read
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s:%d\r\nAuthorization: Bearer %s\r\nUser-Agent: sallyport-probe\r\nConnection: close\r\n\r\n", p.Plain, p.PlainPort, p.placeholder())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			r.Held, r.Saw = true, reasonOf(err)
			return r
		}
		defer resp.Body.Close()
		r.Saw = fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("X-Sallyport-Reason"))
		r.Held = resp.Header.Get("X-Sallyport-Reason") != ""
		return r
	}
}

// leakProbe sends a placeholder to a host that its secret is not for.
func leakProbe(p probePlan) probeAttempt {
	return func(ctx context.Context) probeResult {
		r := frontProbe(probePlan{Host: p.Other, Port: p.Port, Proxy: p.Proxy}, "placeholder to a host that is not approved",
			"GET / HTTP/1.1\r\nHost: "+p.Other+"\r\nAuthorization: Bearer "+p.placeholder()+"\r\nUser-Agent: sallyport-probe\r\nConnection: close\r\n\r\n", p.Other)(ctx)
		r.Promise = "P4"
		return r
	}
}

// reasonOf is the last word of an error, which says how an attempt was
// refused.
func reasonOf(err error) string {
	if err == nil {
		return "closed"
	}
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+1:]
}
