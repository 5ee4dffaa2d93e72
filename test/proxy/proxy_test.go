//go:build linux

package proxy_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/test/lab"
)

// python makes one request through the proxy of its environment.
const python = `
import os, sys, requests
s = requests.Session()
for url in sys.argv[1:]:
    try:
        r = s.get(url, headers={"Authorization": "Bearer " + os.environ["API_KEY"]}, timeout=10)
        print(r.status_code, r.headers.get("X-Sallyport-Reason", ""), r.text[:2000])
    except Exception as e:
        print("failed:", e)
`

// TestExplicitProxy: what an honest client sees and what the log says of it.
func TestExplicitProxy(t *testing.T) {
	b := newBench(t)
	env := b.env("ci", anyProxy)
	http, socks := env["HTTPS_PROXY"], env["ALL_PROXY"]
	key := []string{"-H", "Authorization: Bearer " + env["API_KEY"]}
	curl := func(args ...string) result {
		return b.client(nil, append([]string{"curl", "-sS", "-m", "15"}, args...)...)
	}
	good := b.lab.Origins.Host("good.test")

	for name, args := range map[string][]string{
		"CONNECT, HTTP/1.1":          {"-x", http, "--http1.1"},
		"CONNECT, HTTP/2":            {"-x", http, "--http2"},
		"CONNECT, credential asked":  {"-x", http, "--proxy-anyauth"},
		"SOCKS5":                     {"-x", socks},
		"SOCKS5, given apart":        {"--socks5-hostname", anyProxy, "--proxy-user", user(http)},
		"the proxy of one sandbox":   {"-x", strings.Replace(http, anyProxy, oneProxy, 1)},
		"CONNECT by HTTP/1.0 client": {"-x", http, "--proxy1.0", anyProxy, "--proxy-user", user(http)},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(good.Requests())
			r := curl(append(append(args, key...), "https://good.test/v1")...)
			if r.code != 0 || strings.Contains(r.out, value) {
				t.Fatalf("curl: %d %s", r.code, r.out)
			}
			got := good.Requests()[before:]
			if len(got) != 1 || first(got[0].Header["Authorization"]) != "Bearer "+value || got[0].Header["Proxy-Authorization"] != nil {
				t.Errorf("the origin received %+v", got)
			}
		})
	}
	t.Run("records are those of a transparent capture", func(t *testing.T) {
		m := b.mark()
		curl("-x", http, "https://good.test/v1")
		b.decided(m, "conn allow rule_allow good.test", "http allow rule_allow good.test")
		m = b.mark()
		curl("-x", http, "https://evil.test/")
		b.decided(m, "conn deny host_not_allowed evil.test")
	})
	t.Run("several hosts on one connection", func(t *testing.T) {
		m := b.mark()
		r := curl("-x", http, "http://plain.test/a", "http://other.test/b", "http://evil.test/c", "http://plain.test:8080/d")
		if !strings.Contains(r.out, "host_not_allowed") {
			t.Errorf("curl: %s", r.out)
		}
		b.decided(m, "http allow rule_allow plain.test", "http allow rule_allow other.test", "http deny host_not_allowed evil.test", "http allow rule_allow plain.test")
	})
	t.Run("Python", func(t *testing.T) {
		r := b.client(env, "python3", "-c", python, "https://good.test/v1", "https://evil.test/", "http://plain.test/")
		lines := strings.SplitN(r.out, "\n", 2)
		if !strings.HasPrefix(lines[0], "200 ") || !strings.Contains(r.out, "host_not_allowed") || strings.Contains(r.out, value) {
			t.Errorf("python: %s", r.out)
		}
	})
	t.Run("Go", func(t *testing.T) {
		r := b.client(env, b.goClient(), "https://good.test/v1", "https://evil.test/", "http://plain.test/")
		if strings.Count(r.out, "200 ") < 2 || !strings.Contains(r.out, "host_not_allowed") {
			t.Errorf("go: %s", r.out)
		}
	})
	if !b.lab.Origins.Host("evil.test").Silent() {
		t.Error("evil.test received something")
	}
}

// TestExplicitProxyRefuses: POL-08, POL-17, H1-25 and credentials.
func TestExplicitProxyRefuses(t *testing.T) {
	b := newBench(t)
	env := b.env("ci", anyProxy)
	http := env["HTTPS_PROXY"]
	other := b.env("other", anyProxy)["HTTPS_PROXY"]
	for _, c := range []struct {
		name, says, decided string
		args                []string
	}{
		{"no credential", "407", "conn deny unknown_sandbox good.test", []string{"-x", "http://" + anyProxy, "https://good.test/"}},
		{"wrong credential", "407", "conn deny unknown_sandbox good.test", []string{"-x", withUser(http, "ci", "x"), "https://good.test/"}},
		{"credential of another name", "407", "conn deny unknown_sandbox good.test", []string{"-x", withUser(http, "other", password(http)), "https://good.test/"}},
		{"sandbox of another proxy", "407", "conn deny unknown_sandbox good.test", []string{"-x", strings.Replace(other, anyProxy, oneProxy, 1), "https://good.test/"}},
		{"sandbox that may nothing", "403", "conn deny host_not_allowed good.test", []string{"-x", other, "https://good.test/"}},
		{"POL-17 port of SSH", "403", "conn deny port_not_allowed good.test", []string{"-x", http, "-p", "http://good.test:22/"}},
		{"address", "403", "conn deny ip_literal " + lab.Origin, []string{"-x", http, "https://" + lab.Origin + "/"}},
		{"SOCKS5 with an address", "SOCKS5", "conn deny ip_literal " + lab.Origin, []string{"-x", env["ALL_PROXY"], "https://" + lab.Origin + "/"}},
		{"SOCKS5 without a credential", "(97)", "conn deny unknown_sandbox", []string{"-x", "socks5h://" + anyProxy, "https://good.test/"}},
		{"H1-25 CONNECT inside a tunnel", "405", "", []string{"-x", http, "--http1.1", "-X", "CONNECT", "https://good.test/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := b.mark()
			r := b.client(nil, append([]string{"curl", "-sSi", "-m", "10"}, c.args...)...)
			if !strings.Contains(r.out, c.says) || r.took > 5*time.Second {
				t.Errorf("curl after %v: %s", r.took, r.out)
			}
			if c.decided != "" {
				b.decided(m, c.decided)
			}
		})
	}
	if n := len(b.lab.Origins.Host("good.test").Requests()); n > 0 {
		t.Errorf("good.test received %d requests", n)
	}
	t.Run("reload", func(t *testing.T) {
		b.g.SetPolicy(t, "p.hcl", "sandbox \"ci\" {}\nsandbox \"new\" {}\n")
		m := b.mark()
		b.client(nil, "curl", "-sS", "-x", http, "https://good.test/")
		b.decided(m, "conn deny host_not_allowed good.test")
		b.env("new", anyProxy)
	})
	t.Run("stopped", func(t *testing.T) {
		if err := b.g.Kill(); err != nil {
			t.Fatal(err)
		}
		if r := b.client(nil, "curl", "-sS", "-x", http, "https://good.test/"); r.code == 0 {
			t.Errorf("curl: %s", r.out)
		}
	})
}

// goClient builds a client that takes its proxy from its environment.
func (b *bench) goClient() string {
	b.t.Helper()
	const source = `package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	for _, u := range os.Args[1:] {
		r, err := http.Get(u)
		if err != nil {
			fmt.Println("failed:", err)
			continue
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		fmt.Println(r.StatusCode, r.Header.Get("X-Sallyport-Reason"), string(b))
	}
}
`
	file, program := filepath.Join(b.dir, "client.go"), filepath.Join(b.dir, "client")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		b.t.Fatal(err)
	}
	build(b.t, program, file)
	return program
}

// user is the credential in a proxy's URL, as curl takes it.
func user(proxy string) string {
	u, err := url.Parse(proxy)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s:%s", u.User.Username(), password(proxy))
}

func password(proxy string) string {
	u, err := url.Parse(proxy)
	if err != nil {
		return err.Error()
	}
	p, _ := u.User.Password()
	return p
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
