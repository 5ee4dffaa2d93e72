//go:build linux

package corpus_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// Interfaces of the shared gateway's host: one number for each case.
func isolationPolicy() map[string]string {
	return map[string]string{"isolation.hcl": `
sandbox "i1" {
  ipv6 = true
  match { cidrs = ["10.66.1.0/24", "fd66:1::/64"] }
  allow "*.i.test" { addresses = DOCS }
}
sandbox "i2" {
  match { cidrs = ["10.66.2.2/32"] }
  allow "*.i.test" { addresses = DOCS }
}
sandbox "i3" {
  match { cidrs = ["10.66.3.0/24", "fd66:3::/64"] }
  allow "*.i.test" { addresses = DOCS }
}
sandbox "net03" {
  allow "*.net03.test" {}
}
sandbox "net04" {
  allow "*.net04.test" { ports = [443, 9090, 22] }
}
`}
}

func TestNET01IPv6(t *testing.T) {
	l := begin(t)
	g := world.gateway
	for name, s := range map[string]*lab.Sandbox{"netns": s1(t), "interface": g.Interface(t, "i1", 1)} {
		t.Run(name, func(t *testing.T) {
			before := s.Mark()
			s.Plain(t, "["+lab.Origin6+"]:443").Rest(t, 3*time.Second)
			s.Decided(t, before, []string{"conn deny ip_literal " + lab.Origin6})
			s.Expect(t, []string{"packet deny icmp_blocked"}, func() { ping6(t, s, lab.Origin6) })
			s.Expect(t, []string{"packet deny udp_blocked"}, func() { datagram(t, s, "["+lab.Origin6+"]:9999") })
			s.Expect(t, []string{"packet deny quic_blocked"}, func() { datagram(t, s, "["+lab.Origin6+"]:443") })
			s.Expect(t, []string{"dns deny host_not_allowed net01.evil.test"}, func() {
				if _, err := s.Exchange("udp", "[2001:4860:4860::8844]:53", question("net01.evil.test", dns.TypeA)); err != nil {
					t.Error(err)
				}
			})
			c, err := s.DialIP("tcp6", "[::ffff:"+lab.Origin+"]:443") // mapped: a connection of IPv4
			if err == nil {
				_ = c.Close()
			}
		})
	}
	t.Run("an allowed name over IPv6", func(t *testing.T) {
		s := attached(t, "v6")
		s.Expect(t, allowed("net01.v6.test"), func() {
			c, err := s.Dial("tcp6", "net01.v6.test:443")
			if err != nil {
				t.Fatal(err)
			}
			check(t, sayTLS(t, s, c, "net01.v6.test", get("/", "net01.v6.test", "Connection: close")), 200, "")
		})
	})
	unasked(t, "net01.evil")
	if q := l.DNS.Public(); len(q) > 0 {
		t.Errorf("a public resolver was asked: %v", q)
	}
}

// ping6 sends one echo request.
func ping6(t *testing.T, s *lab.Sandbox, address string) {
	t.Helper()
	raw(t, s, unix.AF_INET6, unix.IPPROTO_ICMPV6, address, []byte{128, 0, 0, 0, 0, 1, 0, 1, 's', 'e', 'c', 'r', 'e', 't'})
}

// raw sends one packet of a protocol.
func raw(t *testing.T, s *lab.Sandbox, family, protocol int, address string, payload []byte) {
	t.Helper()
	err := s.NS.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var to unix.Sockaddr
		if family == unix.AF_INET6 {
			a := &unix.SockaddrInet6{}
			copy(a.Addr[:], net.ParseIP(address).To16())
			to = a
		} else {
			a := &unix.SockaddrInet4{}
			copy(a.Addr[:], net.ParseIP(address).To4())
			to = a
		}
		err = unix.Sendto(fd, payload, 0, to)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) {
			return nil // refused at once
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNET02SpellingsOfAddresses(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "net02.plain.test"
	for _, spelling := range []string{"2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "127.0.0.1.", "0x7f000001:80", "①②⑦.0.0.1", "127.0.0.1"} {
		t.Run("Host "+spelling, func(t *testing.T) {
			before := s.Mark()
			w := s.Plain(t, host+":80")
			w.Send(t, get("/", spelling))
			a := w.Answer(t, "GET")
			if a.Status != 400 && a.Status != 421 {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
			s.Decided(t, before, refused(host, a.Reason()))
		})
		name := strings.TrimSuffix(strings.TrimSuffix(spelling, "."), ":80")
		t.Run("question "+name, func(t *testing.T) {
			before := s.Mark()
			m := ask(t, s, name, dns.TypeA)
			if m.Rcode != dns.RcodeNameError || len(m.Answer) != 0 {
				t.Errorf("got %v", m)
			}
			if got := s.Mark() - before; got != 1 {
				t.Errorf("%d decisions", got)
			}
			for _, q := range world.lab.DNS.Asked(name) {
				if q.Name == name+"." {
					t.Errorf("asked upstream: %+v", q)
				}
			}
		})
		t.Run("policy "+name, func(t *testing.T) {
			if name == "127.0.0.1" {
				return // a literal, with addresses
			}
			rejected(t, fmt.Sprintf("sandbox \"s\" {\n  allow %q { addresses = [\"127.0.0.0/8\"] }\n}\n", name), "policy.hcl:2")
		})
	}
	silent(t, host)
}

func TestNET03EmbeddedIPv4(t *testing.T) {
	l := begin(t)
	s := attached(t, "net03")
	for i, tt := range []struct{ addr, reason string }{
		{"::ffff:169.254.169.254", "resolves_embedded"},
		{"64:ff9b::a9fe:a9fe", "resolves_embedded"},
		{"64:ff9b:1::7f00:1", "resolves_embedded"},
		{"2002:a9fe:a9fe::1", "resolves_embedded"},
		{"2001:0:c000:201::80ff:fffe", "resolves_embedded"},
		{"::7f00:1", "resolves_embedded"},
		{"fec0::1", "resolves_reserved"},
		{"fe80::1", "resolves_link_local"},
		{"::", "resolves_loopback"},
		{"::1", "resolves_loopback"},
		{"fd00:ec2::254", "resolves_metadata"},
		{"fc00::1", "resolves_private"},
		{"ff02::1", "resolves_reserved"},
	} {
		t.Run(tt.addr, func(t *testing.T) {
			host := fmt.Sprintf("n%d.net03.test", i)
			l.DNS.Set(host, "60 AAAA "+tt.addr)
			before := s.Mark()
			a := s.Get(t, "https://"+host+"/")
			if a.Status != 403 || !strings.HasPrefix(a.Reason(), "resolves_") {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
			if a.Reason() != tt.reason {
				t.Errorf("reason %s, want %s", a.Reason(), tt.reason)
			}
			s.Decided(t, before, refused(host, a.Reason()))
		})
	}
}

func TestNET04TheGatewayItself(t *testing.T) {
	l := begin(t)
	i := world.gateway.Interface(t, "i2", 2)
	s := attached(t, "net04")
	listener, err := l.GW.Listen("tcp", ":9090")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	reached := make(chan string, 10)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			reached <- c.RemoteAddr().String()
			_ = c.Close()
		}
	}()
	for _, address := range []string{"10.66.2.1:9090", lab.Uplink + ":9090", lab.Uplink + ":22", "10.66.2.1:22", "10.66.2.1:443"} {
		host, _, _ := net.SplitHostPort(address)
		i.Expect(t, []string{"conn deny ip_literal " + host}, func() { i.Plain(t, address).Rest(t, 3*time.Second) })
	}
	for name, addr := range map[string]string{"uplink": lab.Uplink, "inside": "10.66.2.1", "loopback": "127.0.0.1"} {
		host := name + ".net04.test"
		l.DNS.Set(host, "60 A "+addr)
		before := s.Mark()
		a := s.Get(t, "https://"+host+":9090/")
		if a.Status != 403 || !strings.HasPrefix(a.Reason(), "resolves_") {
			t.Errorf("%s: %d %s", host, a.Status, a.Body)
		}
		s.Decided(t, before, refused(host, a.Reason()))
	}
	select {
	case from := <-reached:
		t.Errorf("the gateway's own port was reached from %s", from)
	default:
	}
	t.Run("proxy variables of the gateway's environment", func(t *testing.T) {
		g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, p0, real)},
			Env: []string{"HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1", "ALL_PROXY=socks5://127.0.0.1:1"}})
		s := g.Attach(t, "s1")
		check(t, s.Get(t, "https://net04.good.test/"), 200, "")
		check(t, s.Get(t, "http://net04.plain.test/"), 200, "")
	})
}

func TestNET06OtherProtocols(t *testing.T) {
	begin(t)
	t.Run("netns", func(t *testing.T) { otherProtocols(t, s1(t), datagram) })
	// The kernel sends a sandbox on a link only so many refusals a second.
	t.Run("interface", func(t *testing.T) { otherProtocols(t, world.gateway.Interface(t, "i3", 3), untold) })
}

// untold sends one datagram whose sender may not hear that it is refused.
func untold(t *testing.T, s *lab.Sandbox, address string) {
	t.Helper()
	c, err := s.DialIP("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("secret data")); err != nil {
		t.Fatal(err)
	}
}

func otherProtocols(t *testing.T, s *lab.Sandbox, datagram func(*testing.T, *lab.Sandbox, string)) {
	icmp := []byte{8, 0, 0, 0, 0, 1, 0, 1, 'd', 'a', 't', 'a'}
	for _, tt := range []struct {
		name string
		send func()
		want string
	}{
		{"ping", func() { raw(t, s, unix.AF_INET, unix.IPPROTO_ICMP, lab.Origin, icmp) }, "packet deny icmp_blocked"},
		{"GRE", func() { raw(t, s, unix.AF_INET, unix.IPPROTO_GRE, lab.Origin, []byte("\x00\x00\x08\x00tunnel")) }, "packet deny proto_blocked"},
		{"ESP", func() { raw(t, s, unix.AF_INET, unix.IPPROTO_ESP, lab.Origin, []byte("0123456789abcdef")) }, "packet deny proto_blocked"},
		{"SCTP", func() { raw(t, s, unix.AF_INET, unix.IPPROTO_SCTP, lab.Origin, []byte("0123456789abcdef")) }, "packet deny proto_blocked"},
		{"NTP", func() { datagram(t, s, lab.Origin+":123") }, "packet deny udp_blocked"},
		{"QUIC", func() { datagram(t, s, lab.Origin+":443") }, "packet deny quic_blocked"},
		{"IKE", func() { datagram(t, s, lab.Origin+":500") }, "packet deny udp_blocked"},
		{"NAT-T", func() { datagram(t, s, lab.Origin+":4500") }, "packet deny udp_blocked"},
		{"WireGuard", func() { datagram(t, s, lab.Origin+":51820") }, "packet deny udp_blocked"},
		{"UDP to an allowed name", func() {
			a, err := s.Resolve("net06.good.test", dns.TypeA)
			if err != nil {
				a, err = s.Resolve("net06.i.test", dns.TypeA)
			}
			if err != nil {
				t.Fatal(err)
			}
			datagram(t, s, a.String()+":9999")
		}, "packet deny udp_blocked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := s.Mark()
			tt.send()
			eventually(t, func() error {
				if !slices.ContainsFunc(s.Decisions()[before:], func(e *audit.Event) bool { return lab.Line(e) == tt.want }) {
					return fmt.Errorf("no %q", tt.want)
				}
				return nil
			})
		})
	}
}

// tryEverything makes every attempt to get past a gateway that does not serve.
func tryEverything(t *testing.T, sandboxes map[string]*lab.Sandbox, names map[string]string) {
	t.Helper()
	for name, s := range sandboxes {
		for _, network := range []string{"udp", "tcp"} {
			if m, err := exchangeSoon(s, network, question(names[name], dns.TypeA)); err == nil {
				t.Errorf("%s: a dead gateway answered %v", name, m)
			}
		}
		for _, address := range []string{lab.Origin + ":443", lab.Origin + ":80", "[" + lab.Origin6 + "]:443", "8.8.8.8:53", "198.18.0.5:443"} {
			if c, err := dialSoon(s, "tcp", address); err == nil {
				_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
				_, _ = io.WriteString(c, get("/", names[name]))
				if b, _ := io.ReadAll(c); len(b) > 0 {
					t.Errorf("%s: %s answered %q", name, address, b)
				}
				_ = c.Close()
			}
			if c, err := dialSoon(s, "udp", address); err == nil {
				_, _ = io.WriteString(c, "data")
				_ = c.Close()
			}
		}
		raw(t, s, unix.AF_INET, unix.IPPROTO_ICMP, lab.Origin, []byte{8, 0, 0, 0, 0, 1, 0, 1})
		ping6(t, s, lab.Origin6)
	}
}

func TestNET07KilledGatewayFailsClosed(t *testing.T) {
	l := alone(t)
	policy := map[string]string{"p.hcl": l.MustPolicy(t, p0+`
sandbox "i4" {
  ipv6 = true
  match { cidrs = ["10.66.40.0/24", "fd66:40::/64"] }
  allow "*.i.test" { addresses = DOCS }
}
`, real)}
	g := l.Gateway(t, lab.GatewayOptions{Policy: policy, Interfaces: []string{"ib*"}})
	sandboxes := map[string]*lab.Sandbox{"netns": g.Attach(t, "s1"), "interface": g.InterfaceNamed(t, "i4", "ib40", 40)}
	names := map[string]string{"netns": "net07.good.test", "interface": "net07.i.test"}
	for name, s := range sandboxes {
		check(t, s.Get(t, "https://"+names[name]+"/"), 200, "")
	}
	// Every attempt is made again and again while the gateway is away: a minute
	// for the one that the case tells of.
	for how, outage := range map[string]time.Duration{"SIGKILL": time.Minute, "SIGSTOP": 8 * time.Second, "SIGTERM": 8 * time.Second} {
		t.Run(how, func(t *testing.T) {
			loads := map[string]*lab.Wire{}
			for name, s := range sandboxes {
				loads[name] = s.Secure(t, names[name]+":443")
				loads[name].Send(t, get("/lab/sse?n=2000&ms=5", names[name]))
				if _, err := io.ReadFull(loads[name], make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
			}
			strays, err := l.Strays()
			if err != nil || strays != 0 {
				t.Fatal(strays, err)
			}
			origins := len(origin(names["netns"]).Requests()) + len(origin(names["interface"]).Requests())
			switch how {
			case "SIGKILL":
				err = g.Kill()
			case "SIGSTOP":
				err = g.Freeze()
			default: // the rules in the kernel outlive a stop on purpose too
				if err = g.Signal(syscall.SIGTERM); err == nil {
					_, err = g.Exit(30 * time.Second)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			for begun, rounds := time.Now(), 0; rounds == 0 || time.Since(begun) < outage; rounds++ {
				tryEverything(t, sandboxes, names)
			}
			time.Sleep(300 * time.Millisecond)
			if n, err := l.Strays(); n != 0 || err != nil {
				t.Errorf("%d packets passed a dead gateway (%v)", n, err)
			}
			if n := len(origin(names["netns"]).Requests()) + len(origin(names["interface"]).Requests()); n != origins {
				t.Error("the origin was reached past a dead gateway")
			}
			if how == "SIGSTOP" {
				err = g.Signal(syscall.SIGCONT)
			} else {
				err = g.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, s := range sandboxes {
				eventually(t, func() error {
					a, err := lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", "https://"+names[name]+"/", ""))
					if err == nil && a.Status != 200 {
						err = fmt.Errorf("status %d", a.Status)
					}
					return err
				})
			}
		})
	}
	if report, err := audit.Verify(g.State + "/audit"); err != nil {
		t.Errorf("the log: %+v %v", report, err)
	}
}

// patience is how long a machine that is busy may take for what has no bound.
const patience = 30 * time.Second

// eventually waits until f succeeds.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	soon(t, patience, f)
}

// soon is eventually for what has a bound, widely.
func soon(t *testing.T, bound time.Duration, f func() error) {
	t.Helper()
	err := f()
	for end := time.Now().Add(bound); err != nil && time.Now().Before(end); err = f() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
}

// dialSoon dials and gives up early.
func dialSoon(s *lab.Sandbox, network, address string) (c net.Conn, err error) {
	err = s.NS.Do(func() error {
		c, err = net.DialTimeout(network, address, 300*time.Millisecond)
		return err
	})
	return c, err
}

func exchangeSoon(s *lab.Sandbox, network string, m *dns.Msg) (*dns.Msg, error) {
	c, err := dialSoon(s, network, "192.0.2.53:53")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	dc := &dns.Conn{Conn: c}
	if err := dc.WriteMsg(m); err != nil {
		return nil, err
	}
	return dc.ReadMsg()
}

func TestNET08RestartWithSandboxesRunning(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, p0, real)}})
	s := g.Attach(t, "s1")
	const host = "net08.good.test"
	first, err := s.Resolve(host, dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	ready, err := g.Ready()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		idle := s.Secure(t, host+":443")
		idle.Send(t, get("/", host))
		check(t, idle.Answer(t, "GET"), 200, "")
		if i%2 == 0 {
			err = g.Kill()
		} else {
			err = g.Stop()
		}
		if err != nil {
			t.Fatal(err)
		}
		idle.Rest(t, 2*time.Second)
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		// A client that kept the address goes on with it, and trusts the same authority.
		eventually(t, func() error {
			c, err := s.DialIP("tcp", net.JoinHostPort(first.String(), "443"))
			if err != nil {
				return err
			}
			tc, err := s.Handshake(c, host+":443", nil)
			if err != nil {
				return err
			}
			w := lab.OnConn(t, tc)
			w.Send(t, get("/", host, "Authorization: Bearer $API_KEY", "Connection: close"))
			a, err := w.TryAnswer("GET")
			if err == nil && a.Status != 200 {
				err = fmt.Errorf("status %d %s", a.Status, a.Body)
			}
			return err
		})
		if again, err := s.Resolve(host, dns.TypeA); err != nil || again != first {
			t.Errorf("the address was %v and is %v (%v)", first, again, err)
		}
	}
	if again, err := g.Ready(); err != nil || again.Policy.SHA256 != ready.Policy.SHA256 {
		t.Errorf("policy: %+v, then %+v (%v)", ready, again, err)
	}
	if _, err := audit.Verify(g.State + "/audit"); err != nil {
		t.Errorf("the log: %v", err)
	}
	for _, q := range origin(host).Requests() {
		if v := q.Header["Authorization"]; len(v) > 0 && v[0] != "Bearer "+real {
			t.Errorf("the origin saw %q", v)
		}
	}
}

func TestNET09ProxyVariables(t *testing.T) {
	l := begin(t)
	policy := l.MustPolicy(t, p0, real)
	script := `for u in https://net09.good.test/ https://net09.evil.test/ http://net09.plain.test/ http://net09.evil.test/ https://203.0.113.10/; do
  curl -s -o /dev/null --max-time 10 --noproxy '*' -w '%{http_code} ' $u; done
python3 - <<'P'
import socket
s = socket.create_connection(("203.0.113.10", 443), 5)
try:
  s.sendall(b"x"); print("raw", s.recv(10))
except OSError: print("raw", b"") # it is cut, whether all was read or not
P`
	var outputs, records []string
	for _, argv := range [][]string{
		{"sh", "-c", script},
		{"env", "-i", "PATH=/usr/bin:/bin", "CURL_CA_BUNDLE=/run/sallyport/bundle.pem", "sh", "-c", script},
		{"env", "HTTPS_PROXY=http://203.0.113.66:1", "http_proxy=http://203.0.113.66:1", "sh", "-c", script},
	} {
		r := l.Run(t, lab.RunOptions{UID: lab.Nobody, Policy: strings.Replace(policy, `source "file" { path = `, `source "env" { name = "K" } # `, 1), Env: []string{"K=x"}, Argv: argv})
		if r.Code != 0 {
			t.Errorf("exit %d: %s", r.Code, r.Stderr)
		}
		outputs = append(outputs, r.Stdout)
		d := r.Decisions(t)
		slices.Sort(d)
		records = append(records, strings.Join(slices.Compact(d), "\n"))
	}
	if !strings.HasPrefix(outputs[0], "200 403 200 403 000 raw ") {
		t.Errorf("got %q", outputs[0])
	}
	for i := range outputs {
		if outputs[i] != outputs[0] || records[i] != records[0] {
			t.Errorf("environment %d: %q\n%s\nnot\n%s", i, outputs[i], records[i], records[0])
		}
	}
}

func TestOPS01RevokedMeansCut(t *testing.T) {
	l := alone(t) // it measures how soon connections are cut
	const host = "ops01.test"
	full := l.MustPolicy(t, `
sandbox "s1" {
  allow "ops01.test" { addresses = DOCS }
  allow "stays.test" { addresses = DOCS }
  passthrough "pass.ops01.test" { addresses = DOCS }
  tcp "raw.ops01.test:7000" { addresses = DOCS }
}
`, real)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": full}})
	s := g.Attach(t, "s1")
	l.DNS.Set("raw.ops01.test", "60 A "+lab.Raw)
	l.Peer(t, lab.Raw+":7000", func(_ *lab.Peer, c *net.TCPConn) { _, _ = io.Copy(c, c) })

	asked := func() int { return len(origin(host).Requests()) + len(origin("stays.test").Requests()) }
	before := asked()
	sse := s.Secure(t, host+":443")
	sse.Send(t, get("/lab/sse?n=1000&ms=20", host))
	idle := s.Secure(t, host+":443")
	idle.Send(t, get("/", host))
	check(t, idle.Answer(t, "GET"), 200, "")
	upload := s.Secure(t, host+":443")
	upload.Send(t, "PUT /lab/count HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 1000000\r\n\r\nx")
	ws := s.Secure(t, host+":443")
	ws.Send(t, get("/lab/ws", host, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="))
	if a, err := ws.TryAnswer("GET"); err != nil || a.Status != 101 {
		t.Fatalf("websocket: %d %v", a.Status, err)
	}
	c, err := s.Dial("tcp", "pass.ops01.test:443")
	if err != nil {
		t.Fatal(err)
	}
	through := lab.OnConn(t, c)
	through.Send(t, string(helloFor(t, "pass.ops01.test")))
	tcp := s.Plain(t, "raw.ops01.test:7000")
	tcp.Send(t, "hello")
	stays := s.Secure(t, "stays.test:443")
	stays.Send(t, get("/lab/sse?n=100&ms=20", "stays.test", "Connection: close"))
	for _, w := range []*lab.Wire{sse, through, tcp} { // all are under way
		_ = w.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(w, make([]byte, len("hello"))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if n := asked() - before; n != 5 {
			return fmt.Errorf("%d requests are with their origins", n)
		}
		return nil
	})

	begun := time.Now()
	g.SetPolicy(t, "p.hcl", l.MustPolicy(t, "sandbox \"s1\" {\n  allow \"stays.test\" { addresses = DOCS }\n}\n", real))
	var wg sync.WaitGroup
	for name, w := range map[string]*lab.Wire{"SSE": sse, "idle": idle, "upload": upload, "websocket": ws, "passthrough": through, "tcp": tcp} {
		wg.Go(func() {
			w.Rest(t, 3*time.Second)
			if took := time.Since(begun); took > 2500*time.Millisecond {
				t.Errorf("%s was cut after %v", name, took)
			}
		})
	}
	wg.Wait()
	if a := stays.Answer(t, "GET"); strings.Count(a.Body, "data:") != 100 {
		t.Errorf("a stream that is still allowed had %d events", strings.Count(a.Body, "data:"))
	}
	revoked := func() (conns, requests int) {
		for _, e := range g.Events(audit.Filter{Reason: "revoked"}) {
			switch {
			case e.Phase != audit.PhaseEnd:
				t.Errorf("recorded: %s %s", e.Phase, lab.Line(e))
			case e.Kind == audit.KindConn:
				conns++
			default:
				requests++
			}
		}
		return conns, requests
	}
	eventually(t, func() error {
		if c, r := revoked(); c != 6 || r != 3 {
			var all []string
			for _, e := range g.Events(audit.Filter{}) {
				if e.Phase == audit.PhaseEnd {
					all = append(all, fmt.Sprintf("%s %s: %s %+v", e.Kind, e.Host, e.Reason, e.Error))
				}
			}
			return fmt.Errorf("%d connections and %d requests are recorded as revoked:\n%s", c, r, strings.Join(all, "\n"))
		}
		return nil
	})
	check(t, s.Get(t, "https://"+host+"/"), 403, "host_not_allowed")
}

func TestOPS02ReloadDisturbsNothing(t *testing.T) {
	l := begin(t)
	base := l.MustPolicy(t, p0, real)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": base}})
	s := g.Attach(t, "s1")
	const host = "ops02.good.test"
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	requests := 0
	fail := func(err error) { mu.Lock(); defer mu.Unlock(); t.Error(err) }
	for i := range 4 {
		client := s.Client(t, i%2 == 1)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, err := lab.Try(client, lab.NewRequest(t, "GET", "https://"+host+"/", ""))
				if err != nil || a.Status != 200 {
					fail(fmt.Errorf("%d %v %s", a.Status, err, a.Body))
					return
				}
				mu.Lock()
				requests++
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	sse := s.Secure(t, host+":443")
	sse.Send(t, get("/lab/sse?n=100&ms=30", host, "Connection: close"))
	upload := s.Secure(t, host+":443")
	upload.Send(t, "PUT /lab/count HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 100000\r\n\r\n")
	for i := range 100 {
		text := base
		if i%2 == 0 {
			text += "\nsandbox \"another\" {\n  allow \"unrelated.test\" {}\n}\n"
		}
		g.WritePolicy(t, "p.hcl", text)
		if err := g.Reload(); err != nil {
			t.Fatal(err)
		}
		upload.Send(t, strings.Repeat("x", 1000))
		time.Sleep(20 * time.Millisecond)
	}
	if a := upload.Answer(t, "PUT"); a.Body != "100000 <nil>" {
		t.Errorf("the upload: %d %q", a.Status, a.Body)
	}
	if a := sse.Answer(t, "GET"); strings.Count(a.Body, "data:") != 100 {
		t.Errorf("the stream had %d events", strings.Count(a.Body, "data:"))
	}
	close(stop)
	wg.Wait()
	if requests < 50 {
		t.Errorf("%d requests", requests)
	}
	s.Mark()
	for _, e := range s.Decisions() {
		if e.Policy == nil || e.Policy.Generation == 0 || len(e.Policy.SHA256) != 64 {
			t.Fatalf("%s has the policy %+v", lab.Line(e), e.Policy)
		}
		if e.Verdict != "allow" {
			t.Errorf("recorded: %s", lab.Line(e))
		}
	}
}

// makeLarge makes p.hcl a policy with so many comments of a kilobyte behind it.
// It has its name at once: the part that is there first would be read, as it is
// not too large. And it is written in pieces: to copy it whole under the race
// detector holds up all tests that run beside it, for seconds.
func makeLarge(t *testing.T, dir, policy string, comments int) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "p.new"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 64<<10)
	_, _ = w.WriteString(policy) // Flush says what failed
	comment := "# " + strings.Repeat("x", 997) + "\n"
	for range comments {
		_, _ = w.WriteString(comment)
	}
	if err := errors.Join(w.Flush(), f.Close(), os.Rename(f.Name(), filepath.Join(dir, "p.hcl"))); err != nil {
		t.Fatal(err)
	}
}

func TestOPS04BrokenReload(t *testing.T) {
	l := begin(t)
	base := l.MustPolicy(t, p0, real)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": base}})
	s := g.Attach(t, "s1")
	const host = "ops04.good.test"
	sse := s.Secure(t, host+":443")
	sse.Send(t, get("/lab/sse?n=150&ms=20", host, "Connection: close"))
	ready, err := g.Ready()
	if err != nil {
		t.Fatal(err)
	}
	failures := 0
	for _, tt := range []struct{ name, text string }{
		{"syntax", base + "\nsandbox {"},
		{"half written", base[:len(base)/2]},
		{"empty", ""},
		{"blank", "\n\n# nothing\n"},
		{"unknown attribute", base + "\nsandbox \"x\" {\n  alow \"a.test\" {}\n}\n"},
		{"binary", "\x00\x01\x02"},
		{"secret that is gone", strings.Replace(base, `secret "API_KEY"`, `secret "OTHER_KEY"`, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g.WritePolicy(t, "p.hcl", tt.text)
			if err := g.Reload(); err == nil {
				t.Error("it was accepted")
			}
			failures++
			again, err := g.Ready()
			if err != nil || again != ready {
				t.Errorf("in force: %+v, was %+v (%v)", again, ready, err)
			}
			check(t, s.Get(t, "https://"+host+"/", "Authorization: Bearer $API_KEY"), 200, "")
			check(t, s.Get(t, "https://ops04.evil.test/"), 403, "host_not_allowed")
		})
	}
	t.Run("missing", func(t *testing.T) {
		g.RemovePolicy(t, "p.hcl")
		if err := g.Reload(); err == nil {
			t.Error("it was accepted")
		}
		check(t, s.Get(t, "https://"+host+"/"), 200, "")
	})
	t.Run("200 MB", func(t *testing.T) {
		makeLarge(t, g.PolicyDir(), base, 200_000)
		if err := g.Reload(); err == nil {
			t.Error("it was accepted")
		}
		check(t, s.Get(t, "https://"+host+"/"), 200, "")
	})
	t.Run("by SIGHUP", func(t *testing.T) {
		g.WritePolicy(t, "p.hcl", "sandbox {")
		if err := g.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(400 * time.Millisecond)
		check(t, s.Get(t, "https://"+host+"/"), 200, "")
	})
	bad := 0
	s.Mark()
	for _, e := range g.Events(audit.Filter{Kind: "policy"}) {
		if e.Error != nil && e.Severity == audit.High {
			bad++
		}
	}
	if bad < failures {
		t.Errorf("%d of %d failures are recorded", bad, failures)
	}
	g.WritePolicy(t, "p.hcl", base+"\n# repaired\n")
	soon(t, 10*time.Second, func() error { // by the change of the file alone
		again, err := g.Ready()
		if err == nil && again.Policy.Generation <= ready.Policy.Generation {
			err = errors.New("the repaired policy is not in force")
		}
		return err
	})
	if a := sse.Answer(t, "GET"); strings.Count(a.Body, "data:") != 150 {
		t.Errorf("the stream had %d events", strings.Count(a.Body, "data:"))
	}
}

func TestOPS06DeadAddresses(t *testing.T) {
	l := begin(t)
	s := s1(t)
	dead := func(n int) string { return fmt.Sprintf("203.0.113.%d", 100+n) }
	for _, tt := range []struct {
		name    string
		records []string
	}{
		{"v6hole", []string{"60 AAAA 2001:db8:1::dead", "60 A " + lab.Origin}},
		{"four of five", []string{"60 A " + dead(1), "60 A " + dead(2), "60 A " + dead(3), "60 A " + dead(4), "60 A " + lab.Origin}},
		{"refused", []string{"60 A " + lab.Spare, "60 A " + lab.Origin}},
	} {
		host := strings.ReplaceAll(tt.name, " ", "") + ".ops06.good.test"
		l.DNS.Set(host, tt.records...)
		begun := time.Now()
		check(t, s.Get(t, "https://"+host+"/"), 200, "")
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("%s: %v", tt.name, took)
		}
	}
	l.DNS.Set("alldead.ops06.good.test", "60 A "+dead(5), "60 A "+dead(6))
	begun := time.Now()
	a := s.Get(t, "https://alldead.ops06.good.test/")
	if took := time.Since(begun); a.Status != 502 && a.Status != 504 || took > 30*time.Second {
		t.Errorf("%d after %v", a.Status, took)
	}
}

func TestUDP01QUICAndAltSvc(t *testing.T) {
	begin(t)
	s := s1(t)
	for _, address := range []string{lab.Origin + ":443", "[" + lab.Origin6 + "]:443"} {
		s.Expect(t, []string{"packet deny quic_blocked"}, func() { datagram(t, s, address) })
	}
	for _, protocol := range []string{"http/1.1", "h2"} {
		host := "udp01-" + strings.ReplaceAll(protocol, "/", "") + ".good.test"
		origin(host).SetProtocols(protocol)
		origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Alt-Svc"] = []string{`h3=":443"; ma=86400`, `h2="evil.test:443"`}
		}))
		if a := s.Get(t, "https://"+host+"/"); a.Status != 200 || len(a.Header["Alt-Svc"]) > 0 {
			t.Errorf("%s: the client got %v", protocol, a.Header["Alt-Svc"])
		}
	}
}
