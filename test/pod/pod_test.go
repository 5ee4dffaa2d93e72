//go:build linux

// Package pod tries the gateway as one of several programs in a network
// namespace that has an uplink, as in a pod of Kubernetes.
package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// Users of the pod.
const (
	gatewayGroup = 7955
	jobUser      = 1000
)

const policy = `
secret "API_KEY" {
  hosts = ["good.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "job" {
  ipv6 = true
  allow "good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`

const secretValue = "REAL-VALUE-5"

// pod is the gateway's host as a pod: the gateway has a group of its own, and
// the job is an ordinary user beside it.
type pod struct {
	*lab.Lab
	gateway *lab.Gateway
	bundle  string
}

func open(t *testing.T) *pod {
	t.Helper()
	l := lab.New(t)
	wrapper := filepath.Join(t.TempDir(), "sallyport")
	script := fmt.Sprintf("#!/bin/sh\nexec setpriv --regid %d --clear-groups --bounding-set -all,+net_admin,+net_bind_service --inh-caps -all --no-new-privs %s \"$@\"\n", gatewayGroup, l.Binary)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	l.Binary = wrapper
	p := &pod{Lab: l}
	p.gateway = l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, policy, secretValue)},
		More: "capture \"pod\" {\n  shared = true\n  sandbox = \"job\"\n}\n"})
	p.bundle = filepath.Join(l.Dir, "gateway-ca.pem")
	if err := os.WriteFile(p.bundle, p.gateway.CA, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// job runs a command in the pod as the job's user, or another.
func (p *pod) job(uid uint32, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "CURL_CA_BUNDLE="+p.bundle)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.GW.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// curl asks with a resolver of the net, which must not be asked.
func (p *pod) curl(uid uint32, args ...string) (string, error) {
	return p.job(uid, append([]string{"curl", "-sS", "-m", "8", "-w", " %{http_code}", "-H", "Authorization: Bearer $API_KEY"}, args...)...)
}

// resolve asks a public resolver for an address inside the pod.
func (p *pod) resolve(t *testing.T, kind, name string) string {
	t.Helper()
	out, err := p.job(jobUser, "dig", "+short", "+time=15", "+tries=1", "@8.8.8.8", kind, name)
	if err != nil {
		t.Fatalf("dig: %v: %s", err, out)
	}
	return strings.TrimSpace(out)
}

func (p *pod) recorded(t *testing.T, reason string) {
	t.Helper()
	p.gateway.Await(t, 1, audit.Filter{Reason: reason, Sandbox: "job"})
}

// TestPod: everybody but the gateway is held, and can do what the policy says.
func TestPod(t *testing.T) {
	p := open(t)
	for kind, want := range map[string]string{"A": "198.18.", "AAAA": ":"} {
		a := p.resolve(t, kind, "good.test")
		if !strings.Contains(a, want) {
			t.Fatalf("good.test is %q", a)
		}
		if kind == "AAAA" {
			a = "[" + a + "]"
		}
		before := len(p.Origins.Host("good.test").Requests())
		out, err := p.curl(jobUser, "--resolve", "good.test:443:"+a, "https://good.test/hello")
		if err != nil || !strings.HasSuffix(out, " 200") {
			t.Fatalf("over %s: %s %v\n%s", a, out, err, p.gateway.Stderr())
		}
		got := p.Origins.Host("good.test").Requests()[before:]
		if len(got) != 1 || fmt.Sprint(got[0].Header["Authorization"]) != "[Bearer "+secretValue+"]" {
			t.Errorf("the origin saw %+v", got)
		}
	}
	peer := p.Peer(t, lab.Raw+":9000", nil)
	for _, uid := range []uint32{jobUser, 0} { // root without the gateway's group too
		for name, argv := range map[string][]string{
			"ip_literal":   {"curl", "-sS", "-m", "5", "http://" + lab.Origin + "/"},
			"icmp_blocked": {"busybox", "ping", "-c1", "-W1", lab.Origin},
			"udp_blocked":  {"bash", "-c", "echo x >/dev/udp/" + lab.Raw + "/9999"},
			"quic_blocked": {"bash", "-c", "echo x >/dev/udp/" + lab.Raw + "/443"},
		} {
			if name == "icmp_blocked" && uid != 0 {
				continue // it has no socket for it
			}
			out, err := p.job(uid, argv...)
			if name == "ip_literal" && !strings.Contains(out, "ip_literal") {
				t.Errorf("user %d: %s: %q %v", uid, name, out, err)
			}
			p.recorded(t, name)
		}
		if out, err := p.job(uid, "bash", "-c", "exec 3<>/dev/tcp/"+lab.Raw+"/9000 && read -t 2 <&3"); err == nil {
			t.Errorf("user %d: connected: %s", uid, out)
		}
		// A socket that is bound to the uplink is not led to the gateway; it does
		// not lead out either.
		strays := func() int {
			return len(p.gateway.Events(audit.Filter{Kind: "packet", Reason: "proto_blocked", Sandbox: "job"}))
		}
		before := strays()
		if out, err := p.job(uid, "curl", "-sS", "-m", "2", "--interface", "up0", "http://"+lab.Raw+":9000/"); err == nil {
			t.Errorf("user %d: connected past the gateway: %s", uid, out)
		}
		// Repeats of one packet are told together every 5 s.
		for end := time.Now().Add(20 * time.Second); strays() == before && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		if strays() == before {
			t.Errorf("user %d: what was bound to the uplink is not recorded", uid)
		}
	}
	if n := peer.Accepted(); n > 0 {
		t.Errorf("%d connections arrived", n)
	}
	if n := len(p.Origins.Host(lab.Origin).Requests()); n > 0 {
		t.Errorf("%d requests arrived at the address of the origin", n)
	}
}

// TestPodAnswers: what comes in from outside, as a probe of the node does, is
// answered; programs of the pod reach one another.
func TestPodAnswers(t *testing.T) {
	p := open(t)
	l, err := p.GW.Listen("tcp", ":8085")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "alive") })}
	go func() { _ = s.Serve(l) }() // ends with Close
	defer s.Close()
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = p.Net.Do(func() error {
			c, err = (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	for _, host := range []string{lab.Uplink, "[" + lab.Uplink6 + "]"} {
		resp, err := client.Get("http://" + host + ":8085/")
		if err != nil {
			t.Errorf("from outside: %v", err)
			continue
		}
		b, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || string(b) != "alive" {
			t.Errorf("from outside: %q %v", b, err)
		}
		for _, at := range []string{host, "127.0.0.1"} {
			if out, err := p.job(jobUser, "curl", "-sS", "-m", "3", "http://"+at+":8085/"); err != nil || out != "alive" {
				t.Errorf("beside it at %s: %q %v", at, out, err)
			}
		}
	}
}

// TestPodWithoutGateway: when the gateway is gone nothing leaves, and when it
// is back it works as before.
func TestPodWithoutGateway(t *testing.T) {
	p := open(t)
	a := p.resolve(t, "A", "good.test")
	if err := p.gateway.Kill(); err != nil {
		t.Fatal(err)
	}
	peer := p.Peer(t, lab.Raw+":9000", nil)
	asked := len(p.DNS.Asked(""))
	for _, argv := range [][]string{
		{"curl", "-sS", "-m", "2", "http://" + lab.Origin + "/"}, {"curl", "-sS", "-m", "2", "http://[" + lab.Origin6 + "]/"},
		{"bash", "-c", "exec 3<>/dev/tcp/" + lab.Raw + "/9000"}, {"dig", "+time=1", "+tries=1", "@8.8.8.8", "leak.test"}, {"dig", "+tcp", "+time=1", "+tries=1", "@8.8.8.8", "leak.test"},
	} {
		_, _ = p.job(jobUser, argv...) // it fails; what matters is what arrives
	}
	if n := peer.Accepted(); n > 0 {
		t.Errorf("%d connections arrived", n)
	}
	if n := len(p.Origins.Host(lab.Origin).Requests()); n > 0 {
		t.Errorf("%d requests arrived", n)
	}
	if n := len(p.DNS.Asked("leak")); n > 0 {
		t.Errorf("%d questions arrived, of %d", n, asked)
	}
	if err := p.gateway.Start(); err != nil {
		t.Fatal(err)
	}
	if again := p.resolve(t, "A", "good.test"); again != a {
		t.Errorf("good.test was %s and is %s", a, again)
	}
	if out, err := p.curl(jobUser, "--resolve", "good.test:443:"+a, "https://good.test/hello"); err != nil || !strings.HasSuffix(out, " 200") {
		t.Errorf("%s %v", out, err)
	}
}

// TestPodNeedsAnIdentity: as root in root's group the gateway could be
// anybody, and does not start.
func TestPodNeedsAnIdentity(t *testing.T) {
	l := lab.New(t)
	_, err := l.OpenGateway(lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, policy, secretValue)},
		More: "capture \"pod\" {\n  shared = true\n  sandbox = \"job\"\n}\n"})
	if err == nil || !strings.Contains(err.Error(), "a user or group of its own") {
		t.Errorf("it starts: %v", err)
	}
}
