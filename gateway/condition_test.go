package gateway

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/policy"
)

// condition is a request with a body, and how it is answered.
type condition struct {
	path, query, method string
	body                io.Reader
	header              http.Header
	status              int
	reason              policy.Reason
	answer              string // of 200; "": the body that was sent
}

// unsized hides how long a body is, so that it is sent in chunks.
func unsized(text string) io.Reader { return io.MultiReader(strings.NewReader(text)) }

// TestBodyConditions sends GraphQL and JSON-RPC requests through a gateway
// whose rules look at the body: what a rule lets be arrives byte for byte, and
// nothing else arrives at all.
func TestBodyConditions(t *testing.T) {
	pad := strings.Repeat(" ", 600)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"query":"{viewer}"}`)
	must(t, z.Close())
	call := func(tool string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
	}
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "h1", true: "h2"}[h2], func(t *testing.T) {
			l := newLab(t)
			o := l.origin(t, map[bool]string{false: "http/1.1", true: "h2"}[h2])
			l.allow("api.test", o.port, func(r *policy.Rule) {
				r.Paths, r.GraphQL = []string{"/echo"}, &policy.GraphQL{Operations: []string{"query"}, Fields: []string{"viewer"}, Max: 512}
			})
			l.allow("other.test", o.port, func(r *policy.Rule) {
				r.JSONRPC = &policy.JSONRPC{Methods: []string{"initialize", "notifications/*", "tools/call"}, Tools: []string{"search"}}
			})
			l.allow("other.test", o.port, func(r *policy.Rule) { r.Methods = []string{"GET", "DELETE"} })
			l.allow("api.test", o.port, func(r *policy.Rule) {
				r.Paths, r.GraphQL = []string{"/up", "/trailers"}, &policy.GraphQL{Operations: []string{"query"}, Max: 512}
			})
			l.allow("api.test", o.port, func(r *policy.Rule) { r.Paths = []string{"/up", "/trailers"} })
			l.load()
			client := l.client(t, h2)
			for name, c := range map[string]condition{
				"a query":            {path: "api.test/echo", body: strings.NewReader(` {"query":"query Q { viewer { id } }"} `), status: 200},
				"in chunks":          {path: "api.test/echo", body: unsized(`{"query":"{viewer}"}`), status: 200},
				"a mutation":         {path: "api.test/echo", body: strings.NewReader(`{"query":"mutation { viewer }"}`), status: 403, reason: policy.MethodNotAllowed},
				"one of two":         {path: "api.test/echo", body: strings.NewReader(`[{"query":"{viewer}"},{"query":"mutation{x}"}]`), status: 403, reason: policy.MethodNotAllowed},
				"a key twice":        {path: "api.test/echo", body: strings.NewReader(`{"query":"{viewer}","query":"mutation{x}"}`), status: 403, reason: policy.UninspectableBody},
				"too large":          {path: "api.test/echo", body: strings.NewReader(`{"query":"{viewer}"}` + pad), status: 403, reason: policy.UninspectableBody},
				"too large, unsized": {path: "api.test/echo", body: unsized(`{"query":"{viewer}"}` + pad), status: 403, reason: policy.UninspectableBody},
				"as large as may be": {path: "api.test/echo", body: unsized(`{"query":"{viewer}"}` + pad[:492]), status: 200},
				"empty":              {path: "api.test/echo", body: http.NoBody, status: 403, reason: policy.UninspectableBody},
				"compressed":         {path: "api.test/echo", body: bytes.NewReader(packed.Bytes()), header: http.Header{"Content-Encoding": {"gzip"}}, status: 403, reason: policy.UninspectableBody},
				"another coding":     {path: "api.test/echo", body: strings.NewReader(`{"query":"{viewer}"}`), header: http.Header{"Content-Encoding": {"aes128gcm"}}, status: 403, reason: policy.UninspectableBody},
				"said to be itself":  {path: "api.test/echo", body: strings.NewReader(`{"query":"{viewer}"}`), header: http.Header{"Content-Encoding": {"identity"}}, status: 200},
				"a form":             {path: "api.test/echo", body: strings.NewReader(`{"query":"{viewer}"}`), header: http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, status: 403, reason: policy.UninspectableBody},
				"in the URL too":     {path: "api.test/echo", query: "?query=mutation{x}", body: strings.NewReader(`{"query":"{viewer}"}`), status: 403, reason: policy.QueryNotAllowed},
				"by GET":             {path: "api.test/echo", query: "?query={viewer}", method: "GET", status: 403, reason: policy.NoRuleMatched},
				"MCP initialize":     {path: "other.test/echo", body: strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`), status: 200},
				"MCP notification":   {path: "other.test/echo", body: strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), status: 200},
				"MCP stream":         {path: "other.test/events", body: strings.NewReader(call("search")), status: 200, answer: "data: 0\n\ndata: 1\n\ndata: 2\n\n"},
				"MCP another tool":   {path: "other.test/events", body: strings.NewReader(call("shell")), status: 403, reason: policy.MethodNotAllowed},
				"MCP another method": {path: "other.test/events", body: strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"resources/read"}`), status: 403, reason: policy.MethodNotAllowed},
				"MCP listening":      {path: "other.test/events", method: "GET", status: 200, answer: "data: 0\n\ndata: 1\n\ndata: 2\n\n"},
				"MCP end":            {path: "other.test/204", method: "DELETE", status: 204},
			} {
				t.Run(name, func(t *testing.T) { c.try(t, client, o) })
			}
			t.Run("allowed by another rule", func(t *testing.T) {
				for _, size := range []int64{0, 100, 512, 513, 200_000} {
					in := io.LimitReader(&pattern{}, size)
					_, got, err := body(client.Post(o.address("api.test/up"), "application/octet-stream", in))
					if want := fmt.Sprintf("%d <nil>", size); err != nil || !strings.HasPrefix(got, want) {
						t.Errorf("%d bytes: %q %v", size, got, err)
					}
				}
			})
			t.Run("trailers behind it", func(t *testing.T) {
				req, err := http.NewRequestWithContext(t.Context(), "POST", o.address("api.test/trailers"), unsized(`{"query":"{viewer}"}`+pad))
				must(t, err)
				req.Trailer = http.Header{"X-Req-T": {"sent"}}
				if _, _, err = body(client.Do(req)); err != nil {
					t.Fatal(err)
				}
				o.mu.Lock()
				defer o.mu.Unlock()
				if o.trailer != "sent" {
					t.Errorf("trailer %q", o.trailer)
				}
			})
		})
	}
}

func (o *origin) address(hostPath string) string {
	host, path, _ := strings.Cut(hostPath, "/")
	return "https://" + host + ":" + strconv.Itoa(int(o.port)) + "/" + path
}

// try sends the request and looks at what came of it on both sides.
func (c condition) try(t *testing.T, client *http.Client, o *origin) {
	var sent []byte
	if c.body != nil {
		var err error
		_, sized := c.body.(interface{ Len() int })
		sent, err = io.ReadAll(c.body)
		must(t, err)
		if c.body = unsized(string(sent)); sized {
			c.body = bytes.NewReader(sent)
		}
	}
	if c.method == "" {
		c.method = "POST"
	}
	req, err := http.NewRequestWithContext(t.Context(), c.method, o.address(c.path)+c.query, c.body)
	must(t, err)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	for name, values := range c.header {
		req.Header[name] = values
	}
	before := len(o.saw())
	resp, got, err := body(client.Do(req))
	must(t, err)
	if resp.StatusCode != c.status || resp.Header.Get("X-Sallyport-Reason") != string(c.reason) {
		t.Fatalf("%d %s, want %d %s: %s", resp.StatusCode, resp.Header.Get("X-Sallyport-Reason"), c.status, c.reason, got)
	}
	want := c.answer
	if want == "" {
		want = string(sent)
	}
	if c.status == 200 && got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	if arrived := len(o.saw()) - before; arrived != map[bool]int{true: 1, false: 0}[c.status < 300] {
		t.Errorf("%d requests arrived", arrived)
	}
}

// TestBodyConditionMessage holds that a value that is held does not get into
// the log by way of a word of the body.
func TestBodyConditionMessage(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.JSONRPC = &policy.JSONRPC{Methods: []string{"ping"}} })
	l.load()
	if _, err := l.store.Get(t.Context(), secretName); err != nil {
		t.Fatal(err)
	}
	l.load()
	resp, got, err := body(l.client(t, false).Post(o.address("api.test/echo"), "application/json", strings.NewReader(`{"method":"`+secretValue+`"}`)))
	must(t, err)
	if resp.StatusCode != http.StatusForbidden || strings.Contains(got, secretValue) {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	e := l.denied(t, audit.KindHTTP, policy.MethodNotAllowed)
	if strings.Contains(e.Message, secretValue) || !strings.Contains(e.Message, "JSON-RPC method") {
		t.Errorf("message %q", e.Message)
	}
}

// TestBodyConditionReload: a request whose body nobody has looked at is cut
// when a reload makes the body decide.
func TestBodyConditionReload(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.Methods = []string{"POST"} })
	l.load()
	c := say(t, l.rawTLS(t, "api.test", o.port), "POST /hang HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")
	l.await(t, "the request", func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseDecision })
	rules := slices.Clone(l.rules)
	rules[0].JSONRPC = &policy.JSONRPC{Methods: []string{"ping"}}
	l.rules = rules
	l.load()
	ended(t, c, cutWithin)
}
