//go:build linux

// Package proxy_test tries the explicit proxy with real clients: curl, Python
// and Go, by CONNECT, with absolute targets and by SOCKS5.
package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// value is what API_KEY stands for.
const value = "REAL-2c0be8817df1-value"

const policy = `
secret "API_KEY" {
  hosts = ["good.test"]
  source "env" { name = "REAL_KEY" }
}
sandbox "ci" {
  allow "good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "plain.test" {
    schemes   = ["http"]
    ports     = [80, 8080]
    addresses = DOCS
  }
  allow "other.test" {
    schemes   = ["http", "https"]
    addresses = DOCS
  }
}
sandbox "other" {}
`

// bench is a daemon with two explicit proxies, and clients beside it.
type bench struct {
	t   *testing.T
	lab *lab.Lab
	g   *lab.Gateway
	dir string
}

const (
	anyProxy = "127.0.0.1:3128" // of every sandbox
	oneProxy = "127.0.0.1:3129" // of ci alone
)

func newBench(t *testing.T) *bench {
	t.Helper()
	l := lab.New(t)
	b := &bench{t: t, lab: l, dir: t.TempDir()}
	b.g = l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": strings.ReplaceAll(policy, "DOCS", lab.Documentation)},
		Env:  []string{"REAL_KEY=" + value},
		More: fmt.Sprintf("capture \"proxy\" { listen = %q }\ncapture \"ci\" {\n  listen = %q\n  sandbox = \"ci\"\n}\n", anyProxy, oneProxy)})
	if err := os.WriteFile(filepath.Join(b.dir, "ca.pem"), b.g.CA, 0o644); err != nil {
		t.Fatal(err)
	}
	return b
}

// env is what the daemon tells a client of a sandbox to set.
func (b *bench) env(sandbox, proxy string) map[string]string {
	b.t.Helper()
	var list []struct{ ID, Name string }
	var one struct{ Env map[string]string }
	b.decode(&list, "sandbox", "ls", "--json", "--socket", b.g.Socket())
	for _, sb := range list {
		if sb.Name != sandbox {
			continue
		}
		b.decode(&one, "sandbox", "show", sb.ID, "--json", "--socket", b.g.Socket())
		if strings.HasSuffix(one.Env["HTTPS_PROXY"], "@"+proxy) {
			return one.Env
		}
	}
	b.t.Fatalf("no sandbox %s at %s in %+v", sandbox, proxy, list)
	return nil
}

func (b *bench) decode(out any, args ...string) {
	b.t.Helper()
	text, err := exec.Command(b.lab.Binary, args...).Output()
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		b.t.Fatalf("%v: %v %s", args, err, text)
	}
}

// result is what a client did.
type result struct {
	out  string
	code int
	took time.Duration
}

// client runs a program beside the gateway with these variables.
func (b *bench) client(env map[string]string, argv ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir}
	ca := filepath.Join(b.dir, "ca.pem")
	for k, v := range env {
		if !strings.HasSuffix(strings.ToUpper(k), "PROXY") && k != "API_KEY" {
			continue
		}
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Env = append(cmd.Env, "CURL_CA_BUNDLE="+ca, "SSL_CERT_FILE="+ca, "REQUESTS_CA_BUNDLE="+ca)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	began := time.Now()
	err := b.lab.GW.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("%v: %v", argv, err)
	}
	return result{out.String(), cmd.ProcessState.ExitCode(), time.Since(began)}
}

// decided holds that these decisions, as lines, and no others have been
// recorded since mark.
func (b *bench) decided(mark int, want ...string) {
	b.t.Helper()
	var got []string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = b.decisions()[mark:]; slices.Equal(got, want) {
			return
		}
	}
	b.t.Errorf("decided\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

// decisions are the lines of those that stand in the log now: who follows it
// may be behind.
func (b *bench) decisions() (lines []string) {
	b.t.Helper()
	for e, err := range audit.Read(context.Background(), []string{filepath.Join(b.g.State, "audit")}, audit.Filter{}) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e.Phase == audit.PhaseDecision {
			lines = append(lines, lab.Line(e))
		}
	}
	return lines
}

func (b *bench) mark() int { return len(b.decisions()) }

// withUser replaces the credential of a proxy's URL.
func withUser(proxy, user, password string) string {
	u, err := url.Parse(proxy)
	if err != nil {
		return err.Error()
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

func build(t *testing.T, program, file string) {
	t.Helper()
	if out, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
