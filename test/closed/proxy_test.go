//go:build linux

package closed_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"sallyport/test/closed"
	"sallyport/test/lab"
)

// TestExplicitProxyIsNoWayRound: an explicit proxy holds nobody. What is
// guaranteed is this. To a client that has no route but to the proxy, nothing
// else is open, whatever becomes of the gateway; a proxy that cannot serve
// (never started, out of descriptors, frozen, killed, stopped) answers nothing
// or refuses, and passes nothing on; what it passes on it has decided. That there
// is no other route is to be seen to by whoever makes the client's network.
func TestExplicitProxyIsNoWayRound(t *testing.T) {
	const n, address = 95, "10.66.95.1:3128"
	l := lab.New(t)
	g := l.UnstartedGateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, "sandbox \"ci\" {\n  allow \"good.test\" { addresses = DOCS }\n}\n", "")},
		More: fmt.Sprintf("capture \"proxy\" {\n  listen = %q\n  sandbox = \"ci\"\n}\n", address)})
	client := link(t, l, "px1", n)
	ip(t, client, "route del default", "-6 route del default")
	watch := l.Watch(t)
	s := closed.Of(g, closed.Sandbox{Capture: "explicit proxy", Name: "ci", NS: client, Watch: watch, From4: address4(n), From6: address6(n)})
	var credential *url.Userinfo
	signal := func(sig syscall.Signal) func() error { return func() error { return g.Signal(sig) } }
	limited := func(soft int) func() error {
		return func() error {
			out, err := exec.Command("prlimit", "--pid", fmt.Sprint(g.PID()), fmt.Sprintf("--nofile=%d:", soft)).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		}
	}
	good := l.Peer(t, lab.Raw+":8443", nil) // nobody is allowed there
	for _, c := range []struct {
		name   string
		come   func() error
		serves bool
	}{
		{"never started", func() error { return nil }, false},
		{"served", func() error {
			err := g.Start()
			credential = proxyUser(t, g, address)
			return err
		}, true},
		{"out of descriptors", limited(1), false},
		{"in descriptors again", limited(512), true},
		{"frozen", signal(syscall.SIGSTOP), false},
		{"going on", signal(syscall.SIGCONT), true},
		{"killed", g.Kill, false},
		{"started again", g.Start, true},
		{"stopped", g.Stop, false},
		{"upgraded", g.Start, true},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			must(t, c.come())
			closed.NothingArrives(t, []*closed.Sandbox{s})
			for _, to := range []string{watch.IP4.String() + ":443", "evil.test:443", good.Addr} {
				if code := connect(client, address, to, credential, 400*time.Millisecond); code == http.StatusOK {
					t.Errorf("a tunnel to %s was opened", to)
				}
			}
			if code := connect(client, address, "good.test:443", nil, 400*time.Millisecond); code == http.StatusOK {
				t.Error("a tunnel was opened without a credential")
			}
			wait := 400 * time.Millisecond
			if c.serves {
				wait = 10 * time.Second
			}
			if code := connect(client, address, "good.test:443", credential, wait); (code == http.StatusOK) != c.serves {
				t.Errorf("a tunnel to good.test: %d\n%s", code, g.Stderr())
			}
			if n := watch.Packets(t); n != 0 || good.Accepted() != 0 {
				t.Errorf("%d packets and %d connections arrived in the net", n, good.Accepted())
			}
		}) {
			return
		}
	}
}

// proxyUser is the credential of ci at a proxy.
func proxyUser(t *testing.T, g *lab.Gateway, address string) *url.Userinfo {
	t.Helper()
	out, err := exec.Command(g.Lab.Binary, "env", "--sandbox", "ci", "--dir", t.TempDir(), "--policy", g.PolicyDir(), "--state", g.State, "--proxy", address).CombinedOutput()
	found := regexp.MustCompile(`HTTPS_PROXY='?(http://[^'\s]+)`).FindSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("env: %v: %s", err, out)
	}
	u, err := url.Parse(string(found[1]))
	must(t, err)
	return u.User
}

// connect asks a proxy for a tunnel and returns the status of its answer, 0 if
// there is none in time.
func connect(from *lab.Namespace, proxy, to string, user *url.Userinfo, wait time.Duration) int {
	var c net.Conn
	err := from.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: wait}).Dial("tcp", proxy)
		return err
	})
	if err != nil {
		return 0
	}
	defer c.Close()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to}, Host: to, Header: http.Header{}}
	if password, ok := user.Password(); ok {
		req.SetBasicAuth(user.Username(), password)
		req.Header.Set("Proxy-Authorization", req.Header.Get("Authorization"))
		req.Header.Del("Authorization")
	}
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil || req.Write(c) != nil {
		return 0
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
