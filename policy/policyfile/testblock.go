package policyfile

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// Test is one test block: requests of a sandbox and how policy is to decide
// them.
type Test struct {
	Name    string
	Pos     policy.Pos
	Sandbox string
	Now     time.Time // zero: the test does not say
	Allow   []TestRequest
	Deny    []TestRequest
	Request *TestRequest // nil: the test has lines only
	Expect  Expectation  // of Request
}

// TestRequest is one request of a test.
type TestRequest struct {
	Pos      policy.Pos
	Method   string
	URL      string
	Headers  map[string]string
	Body     string
	Resolves []netip.Addr // what the host's name is taken to resolve to
}

// Expectation is how a test's request is to be decided.
type Expectation struct {
	Pos     policy.Pos
	Verdict policy.Verdict
	Reason  policy.Reason // "": any
	Inject  []string      // secrets that are sent; nil when HasInject is false
	// HasInject says that the test lists what is injected, be it nothing.
	HasInject bool
}

// test decodes a test block.
func (d *decoder) test(b *hclsyntax.Block) {
	t := Test{Pos: pos(b.TypeRange)}
	name, at, ok := d.label(b, "ci reads GitHub")
	if ok {
		t.Name = name
		d.context = "test " + quote(name)
		if !printable(name) || len(name) > 253 {
			d.fail(Diagnostic{Summary: "the name of a test must be one line of at most 253 bytes"}, at)
		}
		d.declare(b, name)
	}
	first := d.once()
	blocks := map[string]bool{}
	d.body(b, &d.lang.test, func(a *hclsyntax.Attribute) {
		d.testAttr(&t, a)
	}, func(inner *hclsyntax.Block) {
		blocks[inner.Type] = true
		switch {
		case !first(inner):
		case inner.Type == "request":
			t.Request = d.request(inner)
		default:
			t.Expect = d.expect(inner)
		}
	})
	if blocks["request"] != blocks["expect"] {
		d.fail(Diagnostic{Summary: "a test with a request block needs an expect block, and the reverse"}, header(b))
	}
	attrs := b.Body.Attributes
	if len(blocks) == 0 && attrs["allow"] == nil && attrs["deny"] == nil {
		d.fail(Diagnostic{Summary: "test expects nothing", Hint: "add allow, deny, or a request with an expect block"}, header(b))
	}
	d.tests = append(d.tests, t)
}

// testAttr decodes one attribute of a test.
func (d *decoder) testAttr(t *Test, a *hclsyntax.Attribute) {
	switch a.Name {
	case "sandbox":
		t.Sandbox, _ = d.string(a.Name, a.Expr)
	case "now":
		t.Now, _ = d.instant(a.Name, a.Expr)
	case "allow":
		t.Allow = d.requestLines(a)
	case "deny":
		t.Deny = d.requestLines(a)
	}
}

// requestLines decodes a list of "METHOD URL".
func (d *decoder) requestLines(a *hclsyntax.Attribute) []TestRequest {
	list, _ := d.some(a.Name, a.Expr)
	out := make([]TestRequest, 0, len(list))
	for _, x := range list {
		method, target, ok := strings.Cut(x.value, " ")
		if ok && token(method) && testURL(target) {
			out = append(out, TestRequest{Pos: pos(x.at), Method: method, URL: target})
			continue
		}
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s: %s is not a method and a URL", a.Name, quote(x.value)),
			Hint:    `write "GET https://api.example.com/v1/items"`,
		}, x.at)
	}
	return out
}

// testURL says whether s is an absolute URL of something that a sandbox can
// open: https, http, ws, wss, or tcp for bytes that are relayed unopened.
func testURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return false
	}
	switch u.Scheme {
	case "https", "http", "wss", "ws":
		return true
	case "tcp":
		return u.Port() != ""
	}
	return false
}

// request decodes the request of a test.
func (d *decoder) request(b *hclsyntax.Block) *TestRequest {
	d.noLabel(b)
	r := &TestRequest{Pos: pos(b.TypeRange), Method: "GET"}
	d.body(b, &d.lang.request, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "method":
			if s, ok := d.string(a.Name, a.Expr); ok && !token(s) {
				d.fail(Diagnostic{Summary: fmt.Sprintf("%s is not a method", quote(s))}, a.Expr.Range())
			} else if ok {
				r.Method = s
			}
		case "url":
			s, ok := d.string(a.Name, a.Expr)
			if ok && !testURL(s) {
				d.fail(Diagnostic{Summary: fmt.Sprintf("%s is not a URL", quote(s)), Hint: `write "https://api.example.com/"`}, a.Expr.Range())
			}
			r.URL = s
		case "headers":
			r.Headers, _ = d.stringMap(a.Name, a.Expr)
		case "body":
			r.Body, _ = d.string(a.Name, a.Expr)
		case "resolves":
			r.Resolves = d.addrs(a.Name, a.Expr)
		}
	}, nil)
	return r
}

// addrs decodes a list of IP addresses.
func (d *decoder) addrs(name string, e hclsyntax.Expression) []netip.Addr {
	list, _ := d.some(name, e)
	var out []netip.Addr
	for _, x := range list {
		a, err := netip.ParseAddr(x.value)
		if err != nil || a.Zone() != "" {
			d.fail(Diagnostic{Summary: fmt.Sprintf("%s: %s is not an IP address", name, quote(x.value))}, x.at)
			continue
		}
		out = append(out, a)
	}
	return out
}

// expect decodes what a test expects.
func (d *decoder) expect(b *hclsyntax.Block) Expectation {
	d.noLabel(b)
	x := Expectation{Pos: pos(b.TypeRange)}
	d.body(b, &d.lang.expect, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "verdict":
			if w, _ := d.choice(a.Name, a.Expr, "allow", "deny"); w == "allow" {
				x.Verdict = policy.Allow
			}
		case "reason":
			w, _ := d.choice(a.Name, a.Expr, reasons()...)
			x.Reason = policy.Reason(w)
		case "inject":
			x.HasInject = true
			for _, ref := range d.refs(a.Name, a.Expr) {
				x.Inject = append(x.Inject, ref.Name)
			}
		}
	}, nil)
	return x
}
