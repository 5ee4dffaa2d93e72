//go:build linux

package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/miekg/dns"

	"sallyport/test/lab"
)

// Kinds of attempts that are counted against the log: each is the user agent
// of its requests too.
const (
	kindWeb     = "web"
	kindUpload  = "upload"
	kindRefused = "refused"
)

const (
	upload   = 256 << 10 // bytes of one
	download = 2 << 20
	names    = 2000 // that are asked for
)

var (
	api   = fmt.Sprintf("https://api.soak.test:%d", port)
	data  = fmt.Sprintf("https://data.soak.test:%d", port)
	fault = fmt.Sprintf("https://fault.soak.test:%d", port)
)

// actors returns what goes on at once.
func (s *soak) actors(t *testing.T, sandboxes ...*lab.Sandbox) []func() {
	var out []func()
	add := func(kind string, every time.Duration, attempt func(i int) error) {
		out = append(out, func() { s.loop(kind, every, attempt) })
	}
	for _, sb := range sandboxes {
		one, two, fresh := sb.Client(t, false), sb.Client(t, true), sb.Client(t, false)
		fresh.Transport.(*http.Transport).DisableKeepAlives = true
		add(kindWeb, 5*time.Millisecond, func(int) error { return secretUsed(one) })
		add(kindWeb, 5*time.Millisecond, func(int) error { return secretUsed(two) })
		add(kindWeb, 20*time.Millisecond, func(int) error { return secretUsed(fresh) })
		add(kindUpload, 50*time.Millisecond, func(int) error { return uploaded(two) })
		add("download", 200*time.Millisecond, func(int) error { return downloaded(one) })
		add("stream", 50*time.Millisecond, func(int) error { return streamed(two) })
		add("socket", 50*time.Millisecond, func(int) error { return socket(one) })
		add(kindRefused, 20*time.Millisecond, func(int) error { return leakRefused(one) })
		add("name", 10*time.Millisecond, func(i int) error { return asked(sb, fmt.Sprintf("n%d.many.test.", i%names), true) })
		add("denied name", 10*time.Millisecond, func(i int) error { return asked(sb, fmt.Sprintf("n%d.denied.test.", i), false) })
		add("packet", 10*time.Millisecond, func(int) error { return packetRefused(sb) })
		add("fault", 100*time.Millisecond, func(i int) error { return failed(fresh, i) })
	}
	add("reload", 5*time.Second, s.reload)
	add("rotation", 4*time.Second, s.secret.rotate)
	out = append(out, func() { s.churn(t) })
	return out
}

// get sends one request and returns its whole answer.
func get(c *http.Client, kind, method, url string, body io.Reader, fields ...string) (int, http.Header, []byte, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("User-Agent", kind)
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, b, err
}

// secretUsed: the origin gets a value of the secret, and the client none.
func secretUsed(c *http.Client) error {
	status, _, b, err := get(c, kindWeb, "GET", api+"/secret", nil, "Authorization", "Bearer $API_KEY")
	switch {
	case err != nil:
		return err
	case status != 200 || !bytes.HasPrefix(b, []byte("you sent Bearer ***")):
		return fmt.Errorf("%d %s", status, b)
	case bytes.Contains(b, []byte(valuePrefix)):
		return fmt.Errorf("the client was shown %s", b)
	}
	return nil
}

func uploaded(c *http.Client) error {
	status, _, b, err := get(c, kindUpload, "POST", data+"/count", bytes.NewReader(make([]byte, upload)))
	if err == nil && (status != 200 || string(b) != fmt.Sprintf("%d <nil>", upload)) {
		err = fmt.Errorf("%d %s", status, b)
	}
	return err
}

func downloaded(c *http.Client) error {
	status, _, b, err := get(c, "download", "GET", data+"/bytes", nil)
	if err == nil && (status != 200 || len(b) != download) {
		err = fmt.Errorf("%d, %d bytes", status, len(b))
	}
	return err
}

func streamed(c *http.Client) error {
	status, _, b, err := get(c, "stream", "GET", data+"/events", nil)
	if err == nil && (status != 200 || bytes.Count(b, []byte("data: ")) != 5) {
		err = fmt.Errorf("%d %q", status, b)
	}
	return err
}

func socket(c *http.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, strings.Replace(data, "https:", "wss:", 1)+"/socket", &websocket.DialOptions{HTTPClient: c})
	if err != nil {
		return err
	}
	defer ws.CloseNow()
	for i := range 3 {
		text := fmt.Sprintf("message %d", i)
		if err := ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			return err
		}
		if _, b, err := ws.Read(ctx); err != nil || string(b) != text {
			return fmt.Errorf("got %q, %w", b, err)
		}
	}
	return ws.Close(websocket.StatusNormalClosure, "")
}

// leakRefused: the placeholder does not go to a host that is not its own.
func leakRefused(c *http.Client) error {
	status, h, _, err := get(c, kindRefused, "GET", data+"/", nil, "Authorization", "Bearer $API_KEY")
	if reason := h.Get("X-Sallyport-Reason"); err == nil && (status != 403 || reason != "placeholder_leak") {
		err = fmt.Errorf("%d %s", status, reason)
	}
	return err
}

// asked looks a name up; that of an allowed one is an address of its own, of
// a denied one that of denied names.
func asked(sb *lab.Sandbox, name string, allowed bool) error {
	m, err := sb.Ask(name, dns.TypeA)
	if err == nil && (m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1) {
		err = fmt.Errorf("%s, allowed %t: %v", name, allowed, m)
	}
	return err
}

// packetRefused: a packet that is neither TCP nor a question is refused.
func packetRefused(sb *lab.Sandbox) error {
	c, err := sb.DialIP("udp", net.JoinHostPort(lab.Spare, "9999"))
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // a UDP socket takes it
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	if _, err = c.Read(make([]byte, 1)); errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the kernel bounds how many refusals it sends
	}
	return fmt.Errorf("read: %w", err)
}

// failed asks one of the upstreams that fail; the client is told.
func failed(c *http.Client, i int) error {
	url := [...]string{fault + "/broken", fault + "/silent", "https://fault.soak.test:7001/", "https://fault.soak.test:7002/"}[i%4]
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if strings.HasSuffix(url, "/silent") {
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		if strings.HasSuffix(url, "/silent") && errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if broken := strings.HasSuffix(url, "/broken"); broken == (err == nil) || !broken && resp.StatusCode != http.StatusBadGateway {
		return fmt.Errorf("%s: %d %q, %v", url, resp.StatusCode, b, err)
	}
	return nil
}

// reload changes a rule that no actor uses.
func (s *soak) reload(i int) error {
	text := fmt.Sprintf("group \"g%d\" {\n  allow \"h%d.example.test\" {}\n}\n", i, i)
	if err := os.WriteFile(filepath.Join(s.g.PolicyDir(), "more.hcl"), []byte(text), 0o644); err != nil {
		return err
	}
	return s.g.Reload()
}

// churn lets sandboxes come, make one request, and go.
func (s *soak) churn(t *testing.T) {
	s.loop("sandbox", time.Second, func(i int) (err error) {
		t.Run(fmt.Sprintf("guest%d", i), func(t *testing.T) {
			status, _, b, e := get(s.g.Attach(t, "guest").Client(t, i%2 == 0), "guest", "POST", data+"/count", strings.NewReader("hello"))
			if err = e; err == nil && (status != 200 || string(b) != "5 <nil>") {
				err = fmt.Errorf("%d %s", status, b)
			}
		})
		return err
	})
}

// valuePrefix begins every value of the secret.
const valuePrefix = "REAL-soak-"

func valueOf(i int) string { return fmt.Sprintf("%s%06d-f3a9c2e1b7", valuePrefix, i) }

// rotated is the secret's file and the values that it has had.
type rotated struct {
	path string
	mu   sync.Mutex
	now  int
}

// rotate puts a new value in the place of the file.
func (r *rotated) rotate(i int) error {
	r.mu.Lock()
	r.now = i + 1
	r.mu.Unlock()
	next := r.path + ".next"
	if err := os.WriteFile(next, []byte(valueOf(i+1)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, r.path) // as secret stores do it
}

// was says whether authorization carries the value or one of the two before.
func (r *rotated) was(authorization string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := max(0, r.now-2); i <= r.now; i++ {
		if authorization == "Bearer "+valueOf(i) {
			return true
		}
	}
	return false
}
