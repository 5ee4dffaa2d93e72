//go:build linux

package clients_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/certs"
	"sallyport/test/lab"
)

// client is a program that is run in a sandbox. In its script and files HOST
// is a name that it may reach with API_KEY, and BLOCKED one that it may not.
type client struct {
	name    string // of its row in the README's table
	root    bool   // it is where an ordinary user does not come
	files   map[string]string
	env     []string                             // says where the program itself is, nothing of the network
	serve   func(t *testing.T, s *site)          // what is at HOST; nil reflects requests
	script  string                               // for sh, in the home
	prints  []string                             // where all went well
	refusal string                               // what it says of BLOCKED
	after   func(t *testing.T, s *site)          // what must hold then
	auth    func(value string) (received string) // what HOST receives; nil is a bearer token
}

// site is where one client's requests go.
type site struct {
	host, blocked string
	value         string // of API_KEY
	dir           string // that sandboxes see
	before        int    // requests that host had received
}

// clients are all that are tried.
func clients() []client {
	return slices.Concat(commandLine(), pythons(), nodes(), javas(), browsers(), gits(), registries(), []client{maven()})
}

// basic is the Authorization field of a user called build.
func basic(value string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("build:"+value))
}

// TestClients: each client reaches what is allowed, which receives the key
// that the client never had; is refused what is not, in words that it shows;
// and both are on record.
func TestClients(t *testing.T) {
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.try(t)
		})
	}
}

func (c client) try(t *testing.T) {
	label := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(c.name), "-"), "-")
	s := &site{host: label + ".clients.test", blocked: label + ".blocked.test", value: value, dir: world.lab.Dir + "/" + world.lab.Unique("site")}
	must(t, os.Mkdir(s.dir, 0o755))
	must(t, os.Chmod(s.dir, 0o755))
	if c.serve != nil {
		c.serve(t, s)
	}
	s.before = len(origin(s.host).Requests())
	r := c.run(t, s)
	failed := func(format string, args ...any) {
		t.Helper()
		t.Errorf(format+"\nexit %d\nstdout: %s\nstderr: %s\ndecisions: %q", append(args, r.Code, r.Stdout, r.Stderr, r.Decisions(t))...)
	}
	if r.Code != 0 {
		failed("the client failed")
	}
	for _, want := range c.prints {
		if want = s.named(want); !strings.Contains(r.Stdout, want) {
			failed("it does not print %q", want)
		}
	}
	if want := s.named(c.refusal); !strings.Contains(r.Stdout+r.Stderr, want) {
		failed("it does not say %q of what is blocked", want)
	}
	if strings.Contains(r.Stdout+r.Stderr, s.value) {
		failed("the sandbox has the value")
	}
	c.received(t, s, failed)
	c.recorded(t, s, r.Events(t), failed)
	if c.after != nil {
		c.after(t, s)
	}
}

// run runs the script in the sandbox, as an ordinary user if that can be, and
// without any variable of the one who runs the tests.
func (c client) run(t *testing.T, s *site) *lab.Run {
	t.Helper()
	var text strings.Builder
	text.WriteString("set -e\nfails() { if \"$@\"; then echo \"$* did not fail\" >&2; exit 1; fi; }\n")
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		fmt.Fprintf(&text, "mkdir -p \"$(dirname %[1]s)\"\nprintf %%s %[2]s | base64 -d >%[1]s\n", name, base64.StdEncoding.EncodeToString([]byte(s.named(c.files[name]))))
	}
	text.WriteString(s.named(c.script))
	flags := []string{"--quiet", "--share", world.tools, "--share", s.dir}
	given := certs.TrustAt("/").Environment()
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if _, ok := given[name]; !ok && name != "PATH" && name != "HOME" {
			flags = append(flags, "--env", name)
		}
	}
	for _, kv := range append(c.env, "MODULES="+modules, "TOOLS="+world.tools) {
		flags = append(flags, "--env", kv)
	}
	uid := lab.Nobody
	if c.root {
		uid = 0
	}
	return world.lab.Run(t, lab.RunOptions{UID: uid, Policy: policyText(), Sandbox: "dev", Flags: flags,
		Env: []string{"REAL_KEY=" + s.value}, Argv: []string{"/bin/sh", "-c", text.String()}})
}

// named fills in the names of the site.
func (s *site) named(text string) string {
	return strings.NewReplacer("HOST", s.host, "BLOCKED", s.blocked, "SITE", s.dir).Replace(text)
}

// policyText is that of every sandbox of these tests.
func policyText() string {
	return strings.ReplaceAll(`
secret "API_KEY" {
  hosts = ["*.clients.test"]
  source "env" { name = "REAL_KEY" }
}
sandbox "dev" {
  allow "*.clients.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`, "DOCS", lab.Documentation)
}

// received holds that HOST was given the key as the client would have sent
// it, never a placeholder, and that nothing came to what is blocked.
func (c client) received(t *testing.T, s *site, failed func(string, ...any)) {
	t.Helper()
	want := "Bearer " + s.value
	if c.auth != nil {
		want = c.auth(s.value)
	}
	found := false
	for _, q := range origin(s.host).Requests()[s.before:] {
		got := strings.Join(q.Header["Authorization"], "|")
		if got != want && got != "" {
			failed("%s received Authorization %q, not %q", s.host, got, want)
		}
		found = found || got == want
	}
	if !found {
		failed("%s never received %q", s.host, want)
	}
	if v := origin(s.blocked); !v.Silent() {
		failed("%s received %q", s.blocked, v.Raw())
	}
}

// recorded holds that both attempts are on record.
func (c client) recorded(t *testing.T, s *site, events []*audit.Event, failed func(string, ...any)) {
	t.Helper()
	for _, want := range [][3]string{{"allow", "rule_allow", s.host}, {"deny", "host_not_allowed", s.blocked}} {
		if !slices.ContainsFunc(events, func(e *audit.Event) bool {
			return e.Phase == audit.PhaseDecision && (e.Kind == "http" || e.Kind == "ws") && e.Verdict == want[0] && e.Reason == want[1] && e.Host == want[2]
		}) {
			failed("no request with %q is on record", want)
		}
	}
}
