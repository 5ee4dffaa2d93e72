//go:build linux

package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Sandbox is a place from which attempts are made.
type Sandbox struct {
	Lab     *Lab
	Gateway *Gateway // nil for a `run` sandbox
	Name    string   // of the policy
	ID      string   // of its life; "" when only the name is known
	NS      *Namespace
	Roots   *x509.CertPool // the gateway's authority alone
	log     *eventLog
	env     []string
}

// dialTime bounds a dial from inside.
const dialTime = 5 * time.Second

// Attach makes a namespace without a link, attached as the sandbox that name
// is in the policy, for one test.
func (g *Gateway) Attach(t testing.TB, name string) *Sandbox {
	t.Helper()
	ns, err := newNamespace(g.Lab.home, g.Lab.Unique("s"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.attach(ns, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.call(http.MethodDelete, "/v1/sandboxes/"+s.ID, nil, nil); err != nil && g.running() {
			t.Error(err)
		}
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (g *Gateway) running() bool {
	select {
	case <-g.exited:
		return false
	default:
		return true
	}
}

func (g *Gateway) attach(ns *Namespace, name string) (*Sandbox, error) {
	var out struct {
		ID string `json:"id"`
	}
	in := map[string]string{"sandbox": name, "netns": ns.Path()}
	if err := g.call(http.MethodPost, "/v1/sandboxes", in, &out); err != nil {
		return nil, err
	}
	return g.sandbox(ns, name, out.ID)
}

func (g *Gateway) sandbox(ns *Namespace, name, id string) (*Sandbox, error) {
	s := &Sandbox{Lab: g.Lab, Gateway: g, Name: name, ID: id, NS: ns, Roots: x509.NewCertPool(), log: g.log}
	if !s.Roots.AppendCertsFromPEM(g.CA) {
		return nil, errors.New("the gateway's authority is no certificate")
	}
	return s, nil
}

// Interface makes a namespace with a link to the gateway's host, which is its
// default route, for one test. n is its number: its addresses are 10.66.n.2
// and fd66:n::2, the link's name is sbn, and the policy binds them to name.
func (g *Gateway) Interface(t testing.TB, name string, n int) *Sandbox {
	t.Helper()
	return g.InterfaceNamed(t, name, fmt.Sprintf("sb%d", n), n)
}

// InterfaceNamed is Interface with another name of the link.
func (g *Gateway) InterfaceNamed(t testing.TB, name, link string, n int) *Sandbox {
	t.Helper()
	ns, err := newNamespace(g.Lab.home, g.Lab.Unique("i"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// By its end here: the kernel takes a namespace apart when it comes to
		// it, and what the next test finds must not hang on that.
		gone := g.Lab.GW.Do(func() error { return removeLink(link) })
		if err := errors.Join(gone, ns.Close()); err != nil {
			t.Error(err)
		}
	})
	err = errors.Join(
		g.Lab.GW.Do(func() error { return addVeth(link, "eth0", ns) }),
		ns.Do(func() error {
			return errors.Join(sysctl("net/ipv6/conf/eth0/accept_dad", "0"),
				configure("eth0", fmt.Sprintf("10.66.%d.2/24", n), fmt.Sprintf("fd66:%d::2/64", n)))
		}),
		g.Lab.GW.Do(func() error {
			return configure(link, fmt.Sprintf("10.66.%d.1/24", n), fmt.Sprintf("fd66:%d::1/64", n))
		}),
		ns.Do(func() error {
			return errors.Join(route("eth0", "0.0.0.0/0", fmt.Sprintf("10.66.%d.1", n)), route("eth0", "::/0", fmt.Sprintf("fd66:%d::1", n)))
		}))
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.sandbox(ns, name, "")
	if err != nil {
		t.Fatal(err)
	}
	if !Within(startTime, func() bool { return strings.Contains(g.rules(), link) }) {
		t.Fatalf("the gateway did not take the interface %s:\n%s", link, g.Stderr())
	}
	if !Within(startTime, func() bool { _, err := s.Ask("sallyport.internal", dns.TypeA); return err == nil }) {
		t.Fatal("no question is answered on the interface")
	}
	return s
}

// rules are the nft rules of the gateway's host.
func (g *Gateway) rules() string {
	var out []byte
	_ = g.Lab.GW.Do(func() (err error) { // no rules yet is no rules
		out, err = exec.Command("nft", "list", "ruleset").CombinedOutput()
		return err
	})
	return string(out)
}

// DialIP dials an address and port from inside.
func (s *Sandbox) DialIP(network, address string) (c net.Conn, err error) {
	err = s.NS.Do(func() error {
		d := net.Dialer{Timeout: dialTime, FallbackDelay: -1}
		c, err = d.Dial(network, address)
		return err
	})
	return c, err
}

// Dial resolves the host inside, as A unless the network is tcp6, and dials.
func (s *Sandbox) Dial(network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return s.DialIP(network, address)
	}
	kind := dns.TypeA
	if network == "tcp6" {
		kind = dns.TypeAAAA
	}
	a, err := s.Resolve(host, kind)
	if err != nil {
		return nil, err
	}
	return s.DialIP(network, net.JoinHostPort(a.String(), port))
}

// Resolve asks for an address of host.
func (s *Sandbox) Resolve(host string, kind uint16) (netip.Addr, error) {
	m, err := s.Ask(host, kind)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, rr := range m.Answer {
		switch r := rr.(type) {
		case *dns.A:
			a, _ := netip.AddrFromSlice(r.A.To4())
			return a, nil
		case *dns.AAAA:
			a, _ := netip.AddrFromSlice(r.AAAA.To16())
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address: %s", host, dns.RcodeToString[m.Rcode])
}

// someResolver is what sandboxes ask: an address that nobody has.
const someResolver = "192.0.2.53:53"

// Ask asks one question over UDP.
func (s *Sandbox) Ask(name string, kind uint16) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	m.SetEdns0(1232, false)
	return s.Exchange("udp", someResolver, m)
}

// Exchange asks a resolver anything.
func (s *Sandbox) Exchange(network, resolver string, m *dns.Msg) (*dns.Msg, error) {
	c, err := s.DialIP(network, resolver)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dialTime))
	dc := &dns.Conn{Conn: c, UDPSize: dns.MaxMsgSize}
	if err := dc.WriteMsg(m); err != nil {
		return nil, err
	}
	return dc.ReadMsg()
}

// TLS dials and completes a handshake. The host is the server name unless
// config names another.
func (s *Sandbox) TLS(address string, config *tls.Config) (*tls.Conn, error) {
	c, err := s.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return s.Handshake(c, address, config)
}

// Handshake completes a handshake over c.
func (s *Sandbox) Handshake(c net.Conn, address string, config *tls.Config) (*tls.Conn, error) {
	if config == nil {
		config = &tls.Config{}
	}
	config = config.Clone()
	if config.RootCAs == nil {
		config.RootCAs = s.Roots
	}
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	t := tls.Client(c, config)
	_ = c.SetDeadline(time.Now().Add(dialTime))
	if err := t.Handshake(); err != nil {
		_ = c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return t, nil
}

// Client returns an HTTP client inside the sandbox, of HTTP/2 if asked for.
func (s *Sandbox) Client(t testing.TB, h2 bool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetHTTP2(h2)
	tr := &http.Transport{
		DialContext:     func(_ context.Context, network, address string) (net.Conn, error) { return s.Dial(network, address) },
		TLSClientConfig: &tls.Config{RootCAs: s.Roots}, Protocols: &p, DisableCompression: true,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// trustFiles writes what clients in the sandbox trust, and returns the
// environment that makes them.
func (s *Sandbox) trustFiles() ([]string, error) {
	if s.env != nil {
		return s.env, nil
	}
	file := filepath.Join(s.Lab.Dir, s.Lab.Unique("ca")+".pem")
	if err := os.WriteFile(file, s.Gateway.CA, 0o644); err != nil {
		return nil, err
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		s.env = append(s.env, name+"="+file)
	}
	return s.env, nil
}

// TrustFile is the path of a bundle with the gateway's authority.
func (s *Sandbox) TrustFile(t testing.TB) string {
	t.Helper()
	env, err := s.trustFiles()
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(env[0], "=")
	return file
}

// Result is what a command did.
type Result struct {
	Stdout, Stderr string
	Code           int
	Took           time.Duration
}

// Command runs a command in the sandbox's network, with the environment that
// it would have been given.
func (s *Sandbox) Command(t testing.TB, argv ...string) Result {
	t.Helper()
	env, err := s.trustFiles()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	return runIn(t, s.NS, cmd)
}

// mostTime is how long a command may run, so that one which hangs fails its
// test and not the package.
const mostTime = 10 * time.Minute

func runIn(t testing.TB, ns *Namespace, cmd *exec.Cmd) Result {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 10 * time.Second // for what has ended to be read
	begun := time.Now()
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	hangs := time.AfterFunc(mostTime, func() { _ = cmd.Process.Kill() }) // which is seen by its end
	err := cmd.Wait()
	if !hangs.Stop() {
		t.Fatalf("%v did not end within %v\n%s%s", cmd.Args, mostTime, &stdout, &stderr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &stderr)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode(), Took: time.Since(begun)}
}
