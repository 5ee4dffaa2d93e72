//go:build linux

package secrets_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sallyport/test/lab"
)

const bodiesPolicy = `
secret "API_KEY" {
  hosts = ["*.bodies.test"]
  body {
    types  = ["application/json"]
    fields = ["api_key"]
    max    = "64KiB"
  }
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  allow "*.bodies.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "*.untouched.test" { addresses = DOCS }
}
`

const jsonType = "application/json"

// TestSEC12BodyLengths: the announced length is that of the body as it goes
// out, for values that are longer and shorter than the placeholder and for
// those that JSON escapes; what would break is refused.
func TestSEC12BodyLengths(t *testing.T) {
	for i, value := range []string{"REAL-a-much-longer-value-than-the-placeholder-0f5c", "RL-9x1z", `REAL-"\é-51c09d`} {
		s := start(t, bodiesPolicy, value)
		host := fmt.Sprintf("len%d.bodies.test", i)
		origin(host).SetProtocols("http/1.1")
		body := `{"api_key":"$API_KEY","n":1}`
		passed(t, s.post(t, "https://"+host+"/", jsonType, body))
		var got struct {
			Key string `json:"api_key"`
			N   int
		}
		q := last(t, host)
		if err := json.Unmarshal([]byte(q.Body), &got); err != nil || got.Key != value || got.N != 1 {
			t.Errorf("the origin saw %q, %v", q.Body, err)
		}
		if want := fmt.Sprintf("\r\nContent-Length: %d\r\n", len(q.Body)); !bytes.Contains(origin(host).Raw(), []byte(want)) {
			t.Errorf("no %q in %q", want, origin(host).Raw())
		}
		if i > 0 {
			continue
		}
		n := len(origin(host).Requests())
		a := s.post(t, "https://"+host+"/", jsonType, `{"n":"`+strings.Repeat("x", 70<<10)+`"}`)
		if refused(t, a, "body_too_large"); a.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", a.Status)
		}
		refused(t, s.post(t, "https://"+host+"/", jsonType, body, "Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg=="), "uninspectable_body")
		refused(t, s.post(t, "https://"+host+"/", jsonType, `{"api_key":`), "uninspectable_body")
		if len(origin(host).Requests()) != n {
			t.Error("a refused body reached the origin")
		}
	}
}

// coded is text in a coding.
func coded(t *testing.T, c coding, text io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	w := c.encode(&b)
	if _, err := io.Copy(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// codedRequest posts a body in a coding.
func codedRequest(t *testing.T, coding, host string, body []byte, chunked bool) *http.Request {
	t.Helper()
	req := lab.NewRequest(t, "POST", "https://"+host+"/", "x", "Content-Type: "+jsonType, "Content-Encoding: "+coding)
	req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	if chunked {
		req.ContentLength = -1
	}
	return req
}

// TestSEC14CompressedBodies: they are decoded, judged and encoded again where
// a secret may stand in them, and left alone elsewhere.
func TestSEC14CompressedBodies(t *testing.T) {
	s := start(t, bodiesPolicy, real)
	const host, other = "coded.bodies.test", "a.untouched.test"
	received := make(chan []byte, 1)
	for _, h := range []string{host, other} {
		origin(h).SetHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body) // what is missing differs
			received <- b
		}))
	}
	for _, c := range codings() {
		sent := coded(t, c, strings.NewReader(`{"api_key":"$API_KEY"}`))
		for _, chunked := range []bool{false, true} {
			for _, h2 := range []bool{false, true} {
				name := fmt.Sprintf("%s, chunked=%v, h2=%v", c.name, chunked, h2)
				passed(t, s.do(t, s.Client(t, h2), codedRequest(t, c.name, host, sent, chunked)))
				got := <-received
				r, err := c.decode(bytes.NewReader(got))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				plain, err := io.ReadAll(r)
				if err != nil || string(plain) != `{"api_key":"`+jsonText()+`"}` {
					t.Errorf("%s: the origin saw %q, %v", name, plain, err)
				}
				if q := last(t, host); len(q.Header["Content-Encoding"]) != 1 || q.Header["Content-Encoding"][0] != c.name {
					t.Errorf("%s: the coding became %q", name, q.Header["Content-Encoding"])
				}
			}
		}
		passed(t, s.do(t, s.Client(t, false), codedRequest(t, c.name, other, sent, false)))
		if got := <-received; !bytes.Equal(got, sent) {
			t.Errorf("%s: a body for another host was changed", c.name)
		}
		passed(t, s.do(t, s.Client(t, false), codedRequest(t, c.name, host, coded(t, c, strings.NewReader(`{"n": 1}`)), false)))
		if got := <-received; !bytes.Equal(got, coded(t, c, strings.NewReader(`{"n": 1}`))) {
			t.Errorf("%s: a body without a placeholder was changed", c.name)
		}
		refused(t, s.do(t, s.Client(t, false), codedRequest(t, c.name, host, coded(t, c, strings.NewReader(`{"comment":"$API_KEY"}`)), false)), "placeholder_place")
		refused(t, s.do(t, s.Client(t, false), codedRequest(t, c.name+", "+c.name, host, sent, false)), "uninspectable_body")
		wrong := map[string]string{"gzip": "zstd", "zstd": "gzip", "br": "gzip", "deflate": "zstd"}[c.name]
		refused(t, s.do(t, s.Client(t, false), codedRequest(t, wrong, host, sent, false)), "uninspectable_body")
	}
}

// zeros is a JSON text of zeros.
func zeros(n int64) io.Reader {
	return io.MultiReader(strings.NewReader(`{"n":"`), io.LimitReader(zeroes{}, n), strings.NewReader(`"}`))
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

// TestSEC14Bombs: twenty at once are refused, and take little memory.
func TestSEC14Bombs(t *testing.T) {
	g := world.lab.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": world.lab.MustPolicy(t, bodiesPolicy, real)}})
	s := g.Attach(t, "s1")
	const host = "bomb.bodies.test"
	peak := func() int64 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "VmHWM:")
		n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n << 10
	}
	bombs := map[string][]byte{}
	for _, c := range codings() {
		if c.name != "deflate" {
			bombs[c.name] = coded(t, c, zeros(64<<20))
		}
	}
	passed(t, s.Get(t, "https://"+host+"/"))
	before := peak()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			name := []string{"gzip", "br", "zstd"}[i%3]
			a, err := lab.Try(s.Client(t, i%2 == 1), codedRequest(t, name, host, bombs[name], i%4 < 2))
			if err == nil && a.Reason() != "body_too_large" {
				t.Errorf("%s: %d %s", name, a.Status, a.Body)
			}
		})
	}
	all.Wait()
	const most = 512 << 20 // of 20 bombs of 64 MiB, with the race detector
	if grown := peak() - before; grown > most {
		t.Errorf("the gateway grew by %d MiB", grown>>20)
	}
	for _, q := range origin(host).Requests() {
		if q.Method == "POST" && strings.HasSuffix(q.Body, `"}`) {
			t.Error("a bomb reached the origin")
		}
	}
}
