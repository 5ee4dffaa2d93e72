//go:build linux

package secrets_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/test/lab"
)

// command runs the program outside a sandbox and returns what it printed.
func command(t *testing.T, stdin string, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.Command(world.lab.Binary, args...)
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// ageIdentity writes an identity of age's format, as age-keygen does.
func ageIdentity(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "identity.txt")
	const identity = "AGE-SECRET-KEY-184JMZMVQH3E6U0PSL869004Y3U2NYV7R30EU99CSEDNPH02YUVFSZW44VU\n" // of age's own tests
	if err := os.WriteFile(file, []byte(identity), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSecretSet: a value is put into an age file, is what sandboxes are given,
// and is taken out again; no command prints it.
func TestSecretSet(t *testing.T) {
	dir := filepath.Join(world.lab.Dir, world.lab.Unique("age"))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
secret "AGE_KEY" {
  hosts = ["*.age.test"]
  source "age" {
    path     = %q
    identity = %q
    key      = "openai"
  }
}
secret "ENV_KEY" {
  hosts = ["*.age.test"]
  source "env" { name = "SOME_VARIABLE" }
}
sandbox "s1" {
  allow "*.age.test" {
    addresses = DOCS
    inject    = ["AGE_KEY"]
  }
}
`, filepath.Join(dir, "secrets.age"), ageIdentity(t, dir))
	policy := world.lab.MustPolicy(t, text, "")
	file := filepath.Join(dir, "p.hcl")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	value := "REAL-age-77c1"
	for _, tt := range []struct {
		name  string
		stdin string
		args  []string
		code  int
		says  string
	}{
		{"not there yet", "", []string{"check", "AGE_KEY"}, 1, "FAIL  AGE_KEY"},
		{"empty", "\n", []string{"set", "AGE_KEY"}, 1, "the value is empty"},
		{"control character", "a\x01b", []string{"set", "AGE_KEY"}, 1, "control character"},
		{"another kind", value, []string{"set", "ENV_KEY"}, 1, "set the variable SOME_VARIABLE of the gateway"},
		{"unknown", value, []string{"set", "NO_KEY"}, 1, `the policy has no secret "NO_KEY"`},
		{"from stdin", value + "\n", []string{"set", "AGE_KEY"}, 0, "set   AGE_KEY (age, "},
		{"check", "", []string{"check", "AGE_KEY"}, 0, "ok    AGE_KEY"},
	} {
		out, code := command(t, tt.stdin, append([]string{"secret", "--policy", file}, tt.args...)...)
		if code != tt.code || !strings.Contains(out, tt.says) || strings.Contains(out, value) {
			t.Errorf("%s: exit %d: %s", tt.name, code, out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "secrets.age")); err != nil || strings.Contains(string(b), value) || !strings.HasPrefix(string(b), "age-encryption.org/v1") {
		t.Errorf("the file holds %.60q, %v", b, err)
	}
	s := start(t, text, value)
	passed(t, s.get(t, "https://set.age.test/", "Authorization: Bearer $AGE_KEY"))
	if got := header("Authorization")(last(t, "set.age.test")); got != "Bearer "+value {
		t.Errorf("the origin saw %q", got)
	}
	if out, code := command(t, "", "secret", "--policy", file, "rm", "AGE_KEY"); code != 0 {
		t.Errorf("rm: exit %d: %s", code, out)
	}
	if out, code := command(t, "", "secret", "--policy", file, "check", "AGE_KEY"); code != 1 {
		t.Errorf("check after rm: exit %d: %s", code, out)
	}
}

// TestSecretLs: with a daemon, ls tells how old its values are and what went
// wrong last, and never a value.
func TestSecretLs(t *testing.T) {
	text := world.lab.MustPolicy(t, `
secret "API_KEY" {
  hosts = ["*.ls.test"]
  ttl   = "10m"
  source "file" { path = "SECRETFILE" }
}
secret "GONE_KEY" {
  hosts = ["*.ls.test"]
  source "file" { path = "/nonexistent/key" }
}
sandbox "s1" {
  allow "*.ls.test" {
    addresses = DOCS
    inject    = ["API_KEY", "GONE_KEY"]
  }
}
`, real)
	g := world.lab.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": text}})
	s := g.Attach(t, "s1")
	passed(t, s.Get(t, "https://a.ls.test/", "Authorization: Bearer $API_KEY"))
	refused(t, s.Get(t, "https://a.ls.test/", "Authorization: Bearer $GONE_KEY"), "secret_unavailable")
	out, code := command(t, "", "secret", "ls", "--policy", g.PolicyDir(), "--socket", g.Socket(), "--json")
	if code != 0 || strings.Contains(out, real) {
		t.Fatalf("exit %d: %s", code, out)
	}
	type daemon struct {
		Fetched, Expires, Error string
		Held                    bool
	}
	got := map[string]daemon{}
	for line := range strings.Lines(out) {
		var l struct {
			Name   string
			Daemon daemon
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got[l.Name] = l.Daemon
	}
	if d := got["API_KEY"]; d.Fetched == "" || d.Expires == "" || !d.Held || d.Error != "" {
		t.Errorf("API_KEY: %+v", d)
	}
	if d := got["GONE_KEY"]; d.Fetched != "" || d.Held || !strings.Contains(d.Error, "no such file") {
		t.Errorf("GONE_KEY: %+v", d)
	}
	out, code = command(t, "", "secret", "ls", "--policy", g.PolicyDir(), "--socket", g.Socket())
	if code != 0 || !strings.Contains(out, "AGE") || !strings.Contains(out, "never fetched") || strings.Contains(out, real) {
		t.Errorf("exit %d: %s", code, out)
	}
	if out, code = command(t, "", "secret", "ls", "--policy", g.PolicyDir(), "--socket", "/nonexistent"); code != 1 {
		t.Errorf("exit %d without a daemon: %s", code, out)
	}
}

// TestSecretCheck: with a daemon's socket it is the daemon that fetches, from
// its own place and with its own environment.
func TestSecretCheck(t *testing.T) {
	text := `
secret "DAEMON_KEY" {
  hosts = ["a.check.test"]
  source "env" { name = "OF_THE_DAEMON" }
}
secret "GONE_KEY" {
  hosts = ["a.check.test"]
  source "env" { name = "OF_NOBODY" }
}
sandbox "s1" {
  allow "a.check.test" { inject = ["DAEMON_KEY", "GONE_KEY"] }
}
`
	const value = "REAL-of-the-daemon-31c7"
	g := world.lab.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": text}, Env: []string{"OF_THE_DAEMON=" + value}})
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"here", []string{"DAEMON_KEY"}, 1, "FAIL  DAEMON_KEY"},
		{"there", []string{"DAEMON_KEY", "--socket", g.Socket()}, 0, "ok    DAEMON_KEY"},
		{"not there", []string{"GONE_KEY", "--socket", g.Socket()}, 1, "FAIL  GONE_KEY"},
		{"all", []string{"--all", "--socket", g.Socket()}, 1, "1 of 2 secrets cannot be had"},
		{"no daemon", []string{"DAEMON_KEY", "--socket", "/nonexistent"}, 1, "no daemon answers"},
	} {
		out, code := command(t, "", append([]string{"secret", "check", "--policy", g.PolicyDir()}, tt.args...)...)
		if code != tt.code || !strings.Contains(out, tt.says) || strings.Contains(out, value) {
			t.Errorf("%s: exit %d: %s", tt.name, code, out)
		}
	}
}

// TestUnsentSecretsHaveNoPlaces: what could never be sent cannot be given a
// place to be sent in.
func TestUnsentSecretsHaveNoPlaces(t *testing.T) {
	for attribute, line := range map[string]string{"query": `query = ["key"]`, "path": "path = true", "headers": `headers = ["X-Key"]`, "set": "set = true", "websocket": "websocket = true"} {
		policy := file(t, `
secret "AWS_KEY" {
  hosts = ["a.check.test"]
  `+line+`
  source "aws" { credentials_file = "/etc/aws" }
}
`)
		hcl := policy + ".hcl"
		if err := os.Rename(policy, hcl); err != nil {
			t.Fatal(err)
		}
		out, code := command(t, "", "secret", "ls", "--policy", hcl)
		if code != 1 || !strings.Contains(out, attribute+" has no meaning") {
			t.Errorf("%s: exit %d: %s", line, code, out)
		}
	}
}

// TestMemory: the gateway's memory is neither dumped nor, where it may lock
// it, swapped.
func TestMemory(t *testing.T) {
	g := world.lab.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": "sandbox \"s1\" {}\n"}})
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.PID()))
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", g.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && f[4] != "0" {
			t.Errorf("core files may be written: %s", line)
		}
	}
	log := g.Stderr()
	if locked := !strings.Contains(string(status), "VmLck:\t       0 kB"); locked != strings.Contains(log, "memory is locked") {
		t.Errorf("the log says one thing and the kernel another:\n%s\n%s", status, log)
	}
	if !strings.Contains(log, "memory is locked") && !strings.Contains(log, "memory is not locked") {
		t.Errorf("the log does not say whether memory is locked:\n%s", log)
	}
}
