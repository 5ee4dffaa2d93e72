//go:build linux

package corpus_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"sallyport/test/lab"
)

// real is the value of the secret API_KEY. No sandbox may ever see it.
const real = "REAL-7f3a9c51e2d84b06-value"

// world is the lab and the gateway that the cases share. TestMain sets it.
var world struct {
	lab     *lab.Lab
	gateway *lab.Gateway
}

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // the cases mostly wait
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		return 1
	}
	code := 1
	if policy, err := sharedPolicy(l); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
	} else if g, err := l.OpenGateway(lab.GatewayOptions{Policy: policy, Interfaces: []string{"sb*"}}); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
	} else {
		world.lab, world.gateway = l, g
		code = m.Run()
		for _, path := range holders(l.Dir, l.Binary) { // AUD-02, of what every case has left
			fmt.Fprintln(os.Stderr, "corpus: a file holds the secret:", path)
			code = 1
		}
		if err := g.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "corpus:", err)
			code = 1
		}
	}
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		code = 1
	}
	return code
}

// p0 is the policy that the cases assume: a host with a secret in
// Authorization, one without, one over plain HTTP, and nothing else. Each case
// takes names of its own below them, so that their logs are apart.
const p0 = `
secret "API_KEY" {
  hosts   = ["good.test", "*.good.test"]
  headers = ["Authorization"]
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  allow "good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "*.good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "other.test" { addresses = DOCS }
  allow "*.other.test" { addresses = DOCS }
  allow "plain.test" {
    schemes   = ["http"]
    addresses = DOCS
  }
  allow "*.plain.test" {
    schemes   = ["http"]
    addresses = DOCS
  }
}
`

// sharedPolicy is p0 and what single cases need beside it.
func sharedPolicy(l *lab.Lab) (map[string]string, error) {
	texts := map[string]string{"p0.hcl": p0}
	for _, more := range []map[string]string{namesPolicy(), dnsPolicy(), tlsPolicy(), http1Policy(), http2Policy(), secretsPolicy(), isolationPolicy(), auditPolicy(), clientsPolicy(), imagesPolicy()} {
		maps.Copy(texts, more)
	}
	for name, text := range texts {
		out, err := l.Policy(text, real)
		if err != nil {
			return nil, err
		}
		texts[name] = out
	}
	return texts, nil
}

// begin marks a test as one that runs beside others and holds, at its end,
// that nothing reached the net past the gateway.
func begin(t *testing.T) *lab.Lab {
	t.Helper()
	t.Parallel()
	return alone(t)
}

// alone is begin for a test that must not run beside others.
func alone(t *testing.T) *lab.Lab {
	t.Helper()
	t.Cleanup(func() {
		if n, err := world.lab.Strays(); n != 0 || err != nil {
			t.Errorf("%d packets reached the net past the gateway (%v)", n, err)
		}
	})
	return world.lab
}

// s1 is a new sandbox under p0.
func s1(t *testing.T) *lab.Sandbox { return attached(t, "s1") }

// attached is a new sandbox under the policy of that name.
func attached(t *testing.T, name string) *lab.Sandbox {
	t.Helper()
	return world.gateway.Attach(t, name)
}

// origin is the log of a name.
func origin(name string) *lab.Vhost { return world.lab.Origins.Host(name) }

// Decisions that come together.
func named(host string) []string { return []string{"dns allow rule_allow " + host} }

func connected(host string) []string { return append(named(host), "conn allow rule_allow "+host) }

func allowed(host string) []string { return append(connected(host), "http allow rule_allow "+host) }

// refused is an allowed connection on which one request is denied.
func refused(host, reason string) []string {
	return append(connected(host), "http deny "+reason+" "+host)
}

// unnamed is a name that is denied, and then explained over HTTP or HTTPS.
func unnamed(host, reason string) []string {
	return []string{"dns deny " + reason + " " + host, "conn deny " + reason + " " + host, "http deny " + reason + " " + host}
}

// silent holds that nothing came for the names.
func silent(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if v := origin(n); !v.Silent() {
			t.Errorf("%s received %q", n, v.Raw())
		}
	}
}

// unasked holds that no question with part in its name left the gateway.
func unasked(t *testing.T, part string) {
	t.Helper()
	if q := world.lab.DNS.Asked(part); len(q) > 0 {
		t.Errorf("questions left the gateway: %+v", q)
	}
}

// check compares an answer's status and reason.
func check(t *testing.T, a lab.Answer, status int, reason string) {
	t.Helper()
	if a.Status != status || a.Reason() != reason {
		t.Errorf("got %d %q, want %d %q\n%s", a.Status, a.Reason(), status, reason, strings.TrimSpace(a.Body))
	}
}

// get is a request of HTTP/1.1 by hand, closed after its answer.
func get(path, host string, lines ...string) string {
	head := "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, l := range lines {
		head += l + "\r\n"
	}
	return head + "\r\n"
}
