//go:build linux

package corpus_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

func http1Policy() map[string]string {
	return map[string]string{"http1.hcl": `
sandbox "h1" {
  allow "*.h1.test" {
    schemes   = ["http", "https"]
    addresses = DOCS
  }
  tcp "relay.h1tcp.test:7" { addresses = DOCS }
}
`}
}

// badHeads holds that each request is refused before a byte of it leaves,
// in plain text and in TLS, and that its connection is closed.
func badHeads(t *testing.T, id string, tests []badHead) {
	t.Helper()
	s := attached(t, "h1")
	for i, tt := range tests {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", tt.name, secure), func(t *testing.T) {
				host := fmt.Sprintf("%s-%d.h1.test", id, i)
				before := s.Mark()
				w := open(t, s, host, secure)
				w.Send(t, strings.ReplaceAll(tt.bytes, "HOST", host))
				a := w.Answer(t, "GET")
				check(t, a, tt.status, tt.reason)
				if rest := w.Rest(t, 5*time.Second); rest != "" {
					t.Errorf("after the refusal came %q", rest)
				}
				s.Decided(t, before, refused(host, tt.reason))
				silent(t, host)
			})
		}
	}
}

// open dials the host with TLS or without.
func open(t *testing.T, s *lab.Sandbox, host string, secure bool) *lab.Wire {
	t.Helper()
	if secure {
		return s.Secure(t, host+":443")
	}
	return s.Plain(t, host+":80")
}

type badHead struct {
	name, bytes string
	status      int
	reason      string
}

func TestH101LengthAndChunked(t *testing.T) {
	begin(t)
	badHeads(t, "h101", []badHead{
		{"CL then TE", "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400, "smuggling"},
		{"TE then CL", "POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400, "smuggling"},
	})
	silent(t, "evil.test")
}

func TestH102ObfuscatedTransferEncoding(t *testing.T) {
	begin(t)
	var tests []badHead
	for _, line := range []string{"Transfer-Encoding : chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, identity",
		"Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "X: y\r\n Transfer-Encoding: chunked",
		"Transfer-Encoding: \"chunked\"", "Transfer_Encoding: a\r\nTransfer-Encoding: identity", "Transfer-Encoding: chunked;q=1",
		"Transfer-Encoding:\x0bchunked", "Transfer-Encoding: gzip, chunked", " Transfer-Encoding: chunked"} {
		tests = append(tests, badHead{strings.ReplaceAll(line, "\r\n", "|"), "POST / HTTP/1.1\r\nHost: HOST\r\n" + line + "\r\n\r\n0\r\n\r\n", 400, "smuggling"})
	}
	tests = append(tests, badHead{"HTTP/1.0", "POST / HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "smuggling"})
	badHeads(t, "h102", tests)
}

func TestH104RepeatedLengthAndHost(t *testing.T) {
	begin(t)
	var tests []badHead
	for _, cl := range []string{"4\r\nContent-Length: 5", "4, 4", "+4", "4 4", "04", "-1", "0x4", "4\r\nContent-Length: 4", "", "99999999999999999999"} {
		tests = append(tests, badHead{"length " + strings.ReplaceAll(cl, "\r\n", "|"), "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: " + cl + "\r\n\r\nabcd", 400, "smuggling"})
	}
	tests = append(tests,
		badHead{"two hosts", "GET / HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n", 400, "authority_ambiguous"},
		badHead{"no host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", 400, "authority_ambiguous"},
		badHead{"absolute target of another host", "GET http://evil.test/ HTTP/1.1\r\nHost: HOST\r\n\r\n", 0, ""})
	badHeads(t, "h104", tests[:len(tests)-1])
	t.Run("absolute target of another host", func(t *testing.T) {
		s := attached(t, "h1")
		const host = "h104-abs.h1.test"
		s.Expect(t, refused(host, "authority_ambiguous"), func() {
			w := s.Plain(t, host+":80")
			w.Send(t, "GET http://evil.test/ HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			check(t, w.Answer(t, "GET"), 400, "authority_ambiguous")
		})
		s.Expect(t, allowed(host), func() {
			w := s.Plain(t, host+":80")
			w.Send(t, "GET http://"+host+"/p?q HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			check(t, w.Answer(t, "GET"), 200, "")
		})
		if q := origin(host).Requests(); len(q) != 1 || q[0].Target != "/p?q" {
			t.Errorf("the origin saw %+v", q)
		}
	})
}

func TestH106EachRequestIsJudged(t *testing.T) {
	begin(t)
	s := attached(t, "h1")
	const host = "h106.h1.test"
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", secure), func(t *testing.T) {
			s.Expect(t, append(allowed(host), "http deny authority_mismatch "+host), func() {
				w := open(t, s, host, secure)
				w.Send(t, get("/1", host)+get("/2", "h106.evil.test")+get("/3", host))
				if a := w.Answer(t, "GET"); a.Status != 200 || !strings.Contains(a.Body, `"/1"`) {
					t.Errorf("first: %d %s", a.Status, a.Body)
				}
				check(t, w.Answer(t, "GET"), 421, "authority_mismatch")
				if rest := w.Rest(t, 5*time.Second); rest != "" {
					t.Errorf("then came %q", rest)
				}
			})
		})
	}
	silent(t, "h106.evil.test")
}

func TestH107ExpectContinue(t *testing.T) {
	begin(t)
	s := s1(t)
	head := func(host, path string, n int) string {
		return fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer $API_KEY\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, host, n)
	}
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run("late, origin "+protocol, func(t *testing.T) {
			host := "h107-" + strings.ReplaceAll(protocol, "/", "") + ".good.test"
			origin(host).SetProtocols(protocol)
			origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(300 * time.Millisecond)
				n, err := io.Copy(io.Discard, r.Body)
				fmt.Fprintf(w, "%d %v %s", n, err, r.Header.Get("Authorization"))
			}))
			const size = 20 << 20
			w := s.Secure(t, host+":443")
			w.Send(t, head(host, "/put", size))
			if a := w.Answer(t, "PUT"); a.Status != 100 {
				t.Fatalf("first came %d %s", a.Status, a.Body)
			}
			block := strings.Repeat("x", 1<<20)
			for range size / len(block) {
				w.Send(t, block)
			}
			a := w.Answer(t, "PUT")
			if want := fmt.Sprintf("%d <nil> Bearer %s", size, real); a.Status != 200 || masked(a.Body) != masked(want) {
				t.Errorf("got %d %.100q", a.Status, a.Body)
			}
		})
		for _, code := range []int{401, 417} {
			t.Run(fmt.Sprintf("%d at once, origin %s", code, protocol), func(t *testing.T) {
				host := fmt.Sprintf("h107-%d-%s.good.test", code, strings.ReplaceAll(protocol, "/", ""))
				origin(host).SetProtocols(protocol)
				origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
				w := s.Secure(t, host+":443")
				begun := time.Now()
				w.Send(t, head(host, "/put", 1<<20))
				a := w.Answer(t, "PUT")
				if a.Status == 100 {
					a = w.Answer(t, "PUT") // it may have been let begin; it did not
				}
				if took := time.Since(begun); a.Status != code || took > 3*time.Second {
					t.Errorf("got %d after %v", a.Status, took)
				}
			})
		}
	}
}

// masked is text in which the secret may have been masked on its way back.
func masked(s string) string { return strings.ReplaceAll(s, real, strings.Repeat("*", len(real))) }

func TestH108EarlyAnswer(t *testing.T) {
	begin(t)
	s := s1(t)
	for i, protocol := range []string{"http/1.1", "h2"} {
		host := fmt.Sprintf("h108-%d.good.test", i)
		origin(host).SetProtocols(protocol)
		origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 10<<10) // then enough is seen
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "too much")
		}))
		for range 5 {
			r := s.Command(t, "sh", "-c", "head -c 30000000 /dev/zero | curl -sS --http1.1 -T - -o /dev/null -w '%{http_code}' https://"+host+"/up")
			if r.Stdout != "413" || r.Code != 0 {
				t.Errorf("origin of %s: curl exits %d with %q: %s", protocol, r.Code, r.Stdout, r.Stderr)
			}
		}
	}
}

func TestH109InterimAnswers(t *testing.T) {
	begin(t)
	s := s1(t)
	script := func(host, answer string) {
		origin(host).SetProtocols("http/1.1")
		origin(host).SetScript(func(c lab.Conn, _ int) {
			r := bufio.NewReader(c)
			for {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body) // none has one
				if _, err := io.WriteString(c, answer); err != nil {
					return
				}
			}
		})
	}
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for i, tt := range []struct {
		name, answer string
		lines        []string
		status       []int
		reason       string
	}{
		{"103 and 200", "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n" + ok, nil, []int{103, 200}, ""},
		{"100, 103 and 200", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok, nil, []int{103, 200}, ""},
		{"101 without being asked", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", nil, []int{502}, "upstream_protocol"},
		{"upgrade answered with 200", ok, []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, []int{200}, ""},
		{"upgrade answered with 403", "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, []int{403}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := fmt.Sprintf("h109-%d.good.test", i)
			script(host, tt.answer)
			w := s.Secure(t, host+":443")
			w.Send(t, get("/", host, tt.lines...))
			for _, want := range tt.status {
				a := w.Answer(t, "GET")
				if a.Status != want {
					t.Fatalf("got %d %q, want %d", a.Status, a.Body, want)
				}
				if want >= 200 && a.Reason() != tt.reason {
					t.Errorf("reason %q", a.Reason())
				}
			}
		})
	}
}

func TestH110AnswersWithoutBody(t *testing.T) {
	begin(t)
	s := s1(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		host := "h110-" + strings.ReplaceAll(protocol, "/", "") + ".good.test"
		origin(host).SetProtocols(protocol)
		w := s.Secure(t, host+":443")
		for _, tt := range []struct {
			method, target string
			status         int
			length         string
		}{
			{"HEAD", "/lab/bytes?n=12345", 200, "12345"},
			{"GET", "/lab/status?code=204", 204, ""},
			{"GET", "/lab/status?code=304&Etag=x", 304, ""},
			{"GET", "/lab/bytes?n=10000000", 200, "10000000"},
		} {
			w.Send(t, tt.method+" "+tt.target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			a := w.Answer(t, tt.method)
			if a.Status != tt.status || a.Header.Get("Content-Length") != tt.length || len(a.Header["Transfer-Encoding"]) > 0 {
				t.Errorf("%s %s %s: %d, length %q", protocol, tt.method, tt.target, a.Status, a.Header.Get("Content-Length"))
			}
			if want := tt.length; tt.method == "GET" && tt.status == 200 && strconv.Itoa(len(a.Body)) != want || tt.method == "HEAD" && a.Body != "" {
				t.Errorf("%s %s: %d bytes", tt.method, tt.target, len(a.Body))
			}
		}
	}
	t.Run("delimited by the end", func(t *testing.T) {
		const host = "h110-close.good.test"
		origin(host).SetProtocols("http/1.1")
		origin(host).SetScript(func(c lab.Conn, _ int) {
			_, _ = http.ReadRequest(bufio.NewReader(c)) // the answer is the same to all
			_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n"+strings.Repeat("x", 100000))
		})
		if a := s.Get(t, "https://"+host+"/"); a.Status != 200 || len(a.Body) != 100000 {
			t.Errorf("%d with %d bytes", a.Status, len(a.Body))
		}
	})
}

func TestH111UnknownLengthFromHTTP2(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "h111.good.test"
	origin(host).SetProtocols("h2")
	begun := time.Now()
	r := s.Command(t, "curl", "-sS", "--http1.1", "--max-time", "10", "https://"+host+"/lab/ndjson?n=3&ms=1")
	if r.Code != 0 || strings.Count(r.Stdout, "\n") != 3 || time.Since(begun) > 5*time.Second {
		t.Errorf("curl exits %d after %v: %q %s", r.Code, r.Took, r.Stdout, r.Stderr)
	}
}

func TestH113StreamsAreNotHeldBack(t *testing.T) {
	alone(t) // it measures how soon pieces come
	s := s1(t)
	for _, up := range []string{"http/1.1", "h2"} {
		for _, h2 := range []bool{false, true} {
			for _, path := range []string{"sse", "ndjson"} {
				t.Run(fmt.Sprintf("%s, origin %s, client h2=%v", path, up, h2), func(t *testing.T) {
					t.Parallel()
					host := fmt.Sprintf("h113-%s-%s-%v.good.test", path, strings.ReplaceAll(up, "/", ""), h2)
					origin(host).SetProtocols(up)
					// The secret in the request turns masking of the answer on.
					req := lab.NewRequest(t, "GET", "https://"+host+"/lab/"+path+"?n=10&ms=100", "", "Authorization: Bearer $API_KEY")
					resp, err := s.Client(t, h2).Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					sc, n := bufio.NewScanner(resp.Body), 0
					for sc.Scan() {
						sent, ok := sentAt(sc.Text())
						if !ok {
							continue
						}
						n++
						if lag := time.Since(sent); lag > time.Second {
							t.Errorf("piece %d came %v late", n, lag)
						}
					}
					if n != 10 {
						t.Errorf("%d pieces came: %v", n, sc.Err())
					}
				})
			}
		}
	}
	t.Run("the client's end ends the origin's", func(t *testing.T) {
		const host = "h113-abort.good.test"
		ended := make(chan struct{})
		origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush() // seen by the client or not
			<-r.Context().Done()
			close(ended)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := s.Client(t, false).Do(lab.NewRequest(t, "GET", "https://"+host+"/", "").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_ = resp.Body.Close()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Error("the origin was not told")
		}
	})
}

// sentAt reads when a piece of a stream was sent.
func sentAt(line string) (time.Time, bool) {
	text, ok := strings.CutPrefix(line, "data: ")
	if _, after, found := strings.Cut(line, `"t":`); found {
		text, ok = strings.TrimSuffix(after, "}"), true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(0, n), ok && err == nil
}

func TestH115OfferOfTLS(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "h115.good.test"
	origin(host).SetProtocols("http/1.1")
	w := s.Secure(t, host+":443")
	s.Expect(t, []string{"http allow rule_allow " + host}, func() {
		w.Send(t, get("/", host, "Connection: Upgrade", "Upgrade: TLS/1.2"))
		check(t, w.Answer(t, "GET"), 200, "")
	})
	if raw := origin(host).Raw(); bytes.Contains(bytes.ToLower(raw), []byte("upgrade")) {
		t.Errorf("the origin saw %q", raw)
	}
	s.Expect(t, []string{"http deny upgrade_not_allowed " + host}, func() {
		w.Send(t, get("/", host, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"))
		check(t, w.Answer(t, "GET"), 403, "upgrade_not_allowed")
	})
}

func TestH118LargeHeads(t *testing.T) {
	begin(t)
	badHeads(t, "h118", []badHead{
		{"1.1 MB in all", "GET / HTTP/1.1\r\nHost: HOST\r\n" + strings.Repeat("X-A: "+strings.Repeat("v", 11000)+"\r\n", 100) + "\r\n", 431, "header_too_large"},
		{"20 000 fields", "GET / HTTP/1.1\r\nHost: HOST\r\n" + strings.Repeat("A: b\r\n", 20000) + "\r\n", 431, "header_too_large"},
		{"a URL of 200 kB", "GET /" + strings.Repeat("u", 200<<10) + " HTTP/1.1\r\nHost: HOST\r\n\r\n", 431, "header_too_large"},
	})
	s := s1(t)
	const host = "h118.good.test"
	s.Expect(t, allowed(host), func() {
		check(t, s.Get(t, "https://"+host+"/", "X-Jwt: "+strings.Repeat("j", 32<<10), "Cookie: "+strings.Repeat("c", 64<<10)), 200, "")
	})
	t.Run("an answer's", func(t *testing.T) {
		const host = "h118-answer.good.test"
		origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range 30 {
				w.Header().Add("Set-Cookie", fmt.Sprintf("c%d=%s", i, strings.Repeat("v", 10000)))
			}
		}))
		if a := s.Get(t, "https://"+host+"/"); a.Status != 200 && a.Status != 502 || a.Status == 200 && len(a.Header["Set-Cookie"]) != 30 {
			t.Errorf("%d with %d cookies", a.Status, len(a.Header["Set-Cookie"]))
		}
	})
}

func TestH119IllegalBytes(t *testing.T) {
	begin(t)
	var tests []badHead
	for name, line := range map[string]string{
		"bare CR": "X-A: 1\rX-B: 2", "bare LF": "X-A: 1\nX-B: 2", "NUL": "X-A: a\x00b", "space in the name": "X A: 1", "empty name": ": 1",
		"UTF-8 in the name": "X-\u00e9: 1", "no colon": "X-A", "DEL": "X-A: a\x7fb", "escape": "X-A: \x1b[2J",
	} {
		tests = append(tests, badHead{name, "GET / HTTP/1.1\r\nHost: HOST\r\n" + line + "\r\n\r\n", 400, "smuggling"})
	}
	badHeads(t, "h119", tests)
	s := s1(t)
	const host = "h119.other.test"
	s.Expect(t, allowed(host), func() { check(t, s.Get(t, "https://"+host+"/", "X_Api_Key: plain"), 200, "") })
	if q := origin(host).Requests(); len(q) != 1 || len(q[0].Header["X_api_key"])+len(q[0].Header["X_Api_Key"]) != 1 {
		t.Errorf("the origin saw %+v", q[0].Header)
	}
}

func TestH120SlowClients(t *testing.T) {
	begin(t)
	s, other := s1(t), s1(t)
	const host = "h120.good.test"
	began := time.Now()
	var slow []*lab.Wire
	for range 100 {
		w := s.Secure(t, host+":443")
		w.Send(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\nX: ")
		slow = append(slow, w)
	}
	silentWire := s.Plain(t, host+":443") // not even a hello
	upload := other.Secure(t, host+":443")
	upload.Send(t, "PUT /lab/count HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 40\r\n\r\n")
	events := other.Secure(t, host+":443")
	events.Send(t, get("/lab/sse?n=2&ms=36000", host, "Connection: close"))
	for i := range 40 {
		upload.Send(t, "x")
		for _, w := range slow {
			_, _ = w.Write([]byte("y")) // until it is dropped
		}
		if i == 20 {
			check(t, other.Get(t, "https://"+host+"/"), 200, "")
		}
		time.Sleep(time.Second)
	}
	if a := upload.Answer(t, "PUT"); a.Status != 200 || a.Body != "40 <nil>" {
		t.Errorf("a slow upload got %d %q", a.Status, a.Body)
	}
	for _, w := range slow {
		w.Rest(t, 10*time.Second)
	}
	silentWire.Rest(t, time.Second)
	_ = events.SetReadDeadline(time.Now().Add(60 * time.Second))
	if b, err := io.ReadAll(events); err != nil || bytes.Count(b, []byte("data:")) != 2 {
		t.Errorf("a stream with a long pause: %q %v", b, err)
	}
	if took := time.Since(began); took > 100*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := len(origin(host).Requests()); n != 3 {
		t.Errorf("the origin saw %d requests", n)
	}
}

func TestH121HalfClose(t *testing.T) {
	l := begin(t)
	s := attached(t, "h1")
	const host, relay = "h121.h1.test", "relay.h1tcp.test"
	l.DNS.Set(relay, "60 A "+lab.Raw)
	l.Peer(t, lab.Raw+":7", func(_ *lab.Peer, c *net.TCPConn) {
		b, _ := io.ReadAll(c) // to the client's half-close
		_, _ = c.Write(bytes.ToUpper(b))
	})
	for range 30 {
		w := s.Plain(t, host+":80")
		w.Send(t, get("/lab/bytes?n=200000", host, "Connection: close"))
		if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if a := w.Answer(t, "GET"); a.Status != 200 || len(a.Body) != 200000 {
			t.Fatalf("plain: %d with %d bytes", a.Status, len(a.Body))
		}
		w = s.Secure(t, host+":443")
		w.Send(t, get("/lab/bytes?n=200000", host, "Connection: close"))
		if err := w.Conn.(*tls.Conn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if a := w.Answer(t, "GET"); a.Status != 200 || len(a.Body) != 200000 {
			t.Fatalf("TLS: %d with %d bytes", a.Status, len(a.Body))
		}
		w = s.Plain(t, relay+":7")
		w.Send(t, "abc")
		if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := w.Rest(t, 5*time.Second); got != "ABC" {
			t.Fatalf("relay: %q", got)
		}
	}
}

// descriptors counts the open files of the gateway.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(world.gateway.PID()), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestH122Resets(t *testing.T) {
	l := alone(t)
	s := s1(t)
	const host = "h122.good.test"
	a, err := s.Resolve(host, 1)
	if err != nil {
		t.Fatal(err)
	}
	denied, err := s.Resolve("h122.evil.test", 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = l
	hello := helloFor(t, host)
	attempts := []func() (net.Conn, error){
		func() (net.Conn, error) { // half a ClientHello
			c, err := s.DialIP("tcp", net.JoinHostPort(a.String(), "443"))
			if err == nil {
				_, err = c.Write(hello[:len(hello)/2])
			}
			return c, err
		},
		func() (net.Conn, error) { // a denied request
			c, err := s.DialIP("tcp", net.JoinHostPort(denied.String(), "80"))
			if err == nil {
				_, err = io.WriteString(c, get("/", "h122.evil.test"))
			}
			return c, err
		},
		func() (net.Conn, error) { // a whole ClientHello
			c, err := s.DialIP("tcp", net.JoinHostPort(a.String(), "443"))
			if err == nil {
				_, err = c.Write(hello)
			}
			return c, err
		},
		func() (net.Conn, error) { // a length of a DNS message
			c, err := s.DialIP("tcp", "192.0.2.1:53")
			if err == nil {
				_, err = c.Write([]byte{1, 0, 3})
			}
			return c, err
		},
	}
	reset := func(c net.Conn) {
		tc, ok := c.(*net.TCPConn)
		if !ok {
			return
		}
		_ = tc.SetLinger(0)
		_ = tc.Close()
	}
	before := descriptors(t)
	s.Mark()
	const rounds = 2500 // of each: ten thousand in all
	var wg sync.WaitGroup
	for _, try := range attempts {
		wg.Go(func() {
			for range rounds {
				c, err := try()
				if c == nil && errors.Is(err, syscall.ECONNRESET) {
					continue // by the other side, before it was known here that it was open
				}
				if c == nil {
					t.Error(err)
					return
				}
				reset(c) // an error means that it was reset by the other side
			}
		})
	}
	wg.Wait()
	// While they wait to be taken in and closed, the sandbox may hold no more.
	for end := time.Now().Add(time.Minute); descriptors(t) > before+40 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	upgrade := get("/lab/ws", host, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
	for what, request := range map[string]string{
		"an answer":  get("/lab/bytes?n=50000000", host),
		"a stream":   get("/lab/sse?n=100&ms=50", host),
		"a 101":      upgrade,
		"a body":     "PUT /lab/count HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 100\r\n\r\nabc",
		"a chunk":    "PUT /lab/count HTTP/1.1\r\nHost: " + host + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"a head":     "GET / HTTP/1.1\r\nHost: " + host + "\r\nX: ",
		"the answer": get("/", host),
	} {
		for range 20 {
			w := s.Secure(t, host+":443")
			w.Send(t, request)
			if what[0] == 'a' && what != "a body" && what != "a chunk" && what != "a head" {
				_, _ = io.ReadFull(w, make([]byte, 100))
			}
			reset(w.Conn.(*tls.Conn).NetConn())
		}
	}
	check(t, s.Get(t, "https://"+host+"/"), 200, "")
	eventually(t, func() error {
		if n := descriptors(t); n > before+40 {
			return fmt.Errorf("the gateway had %d descriptors and has %d", before, n)
		}
		return nil
	})
	conns := map[string]int{}
	recorded, asked := 0, 0
	for end := time.Now().Add(patience); time.Now().Before(end); { // what was too much at once is told together, a second later
		clear(conns)
		recorded, asked = 0, 0
		s.Mark()
		for _, e := range s.Decisions() {
			if e.Kind == audit.KindConn {
				conns[e.Conn]++
				recorded += int(max(e.Count, 1))
			}
			if e.Kind == audit.KindDNS && e.DNS != nil && e.DNS.QName == "" {
				asked += int(max(e.Count, 1))
			}
		}
		if recorded >= 3*rounds && asked >= rounds {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if recorded < 3*rounds || asked != rounds {
		t.Errorf("of %d connections %d were recorded, and %d of %d for DNS", 3*rounds, recorded, asked, rounds)
	}
	for id, n := range conns {
		if n != 1 {
			t.Errorf("connection %s has %d decisions", id, n)
		}
	}
}

func TestH123RawPath(t *testing.T) {
	begin(t)
	s := s1(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		host := "h123-" + strings.ReplaceAll(protocol, "/", "") + ".good.test"
		origin(host).SetProtocols(protocol)
		w := s.Secure(t, host+":443")
		targets := []string{"/@scope%2fname", "/a%2Fb", "/a%20b%C3%A9", "/x%zz", "/a//b", "//a/b", "/a/./b", "/a/../b", "/%7Euser", "/~user",
			"/a?", "/?q=%zz&a;b", "/a;b=c/d", "/a?b?c", "/a%00b", "/[x]", "/a|b", `/a"b`, "/%25", "/a%"}
		for _, target := range targets {
			w.Send(t, get(target, host))
			a := w.Answer(t, "GET")
			// net/http, as an origin of HTTP/2, resets the stream of a stray percent.
			refused := protocol == "h2" && strings.HasPrefix(a.Body, "sallyport: upstream_protocol: ")
			if a.Status != 200 && a.Status != 400 && !refused {
				t.Errorf("%s: %d %s", target, a.Status, a.Body)
			}
		}
		var got []string
		for _, q := range origin(host).Requests() {
			got = append(got, q.Target)
		}
		// net/http, as an origin, answers targets with a stray percent by itself.
		raw := string(origin(host).Raw())
		for _, target := range targets {
			if protocol == "http/1.1" && !strings.Contains(raw, "GET "+target+" HTTP/1.1\r\n") {
				t.Errorf("%s did not reach the origin as it is", target)
			}
			if protocol == "h2" && !strings.Contains(target, "%z") && !strings.HasSuffix(target, "%") && !contains(got, target) {
				t.Errorf("%s did not reach the origin as it is: %q", target, got)
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func TestH125Connect(t *testing.T) {
	begin(t)
	s := attached(t, "h1")
	const host = "h125.h1.test"
	for _, target := range []string{"h125.evil.test:443", host + ":443", "203.0.113.10:443"} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", target, secure), func(t *testing.T) {
				s.Expect(t, refused(host, "connect_refused"), func() {
					w := open(t, s, host, secure)
					w.Send(t, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\nX: $API_KEY\r\n\r\n")
					check(t, w.Answer(t, "GET"), 405, "connect_refused")
				})
			})
		}
	}
	t.Run("TRACE", func(t *testing.T) {
		s.Expect(t, refused(host, "method_not_allowed"), func() {
			w := s.Secure(t, host+":443")
			w.Send(t, "TRACE / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			check(t, w.Answer(t, "GET"), 403, "method_not_allowed")
		})
	})
	silent(t, host, "h125.evil.test")
}

func TestH127Fidelity(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "h127.good.test"
	origin(host).SetProtocols("http/1.1")
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Set-Cookie"] = []string{"a=1", "b=2", "c=3", "d=4"}
		h["Www-Authenticate"] = []string{"Basic realm=x", "Bearer"}
		h["Date"], h["Content-Type"] = nil, nil
		_, _ = io.WriteString(w, "ok")
	}))
	w := s.Secure(t, host+":443")
	w.Send(t, "GET /x HTTP/1.1\r\nHost: "+host+"\r\nx-LOWER: one\r\nx-LOWER: two\r\nCookie: a=1\r\nCookie: b=2\r\nCookie: c=3\r\n\r\n")
	a := w.Answer(t, "GET")
	raw := string(origin(host).Raw())
	lower := strings.ToLower(raw)
	for _, added := range []string{"via:", "x-forwarded", "forwarded:", "user-agent", "accept-encoding", "10.66.", "127.0.0.1", "sallyport", "connection:"} {
		if strings.Contains(lower, added) {
			t.Errorf("the origin saw %q in %q", added, raw)
		}
	}
	if strings.Count(lower, "x-lower:") != 2 || strings.Index(lower, "x-lower: one") > strings.Index(lower, "x-lower: two") {
		t.Errorf("repeated fields: %q", raw)
	}
	if strings.Count(lower, "cookie:") != 3 {
		t.Errorf("cookies: %q", raw)
	}
	if c := a.Header["Set-Cookie"]; len(c) != 4 || c[0] != "a=1" || c[3] != "d=4" || len(a.Header["Www-Authenticate"]) != 2 {
		t.Errorf("the client got %v", a.Header)
	}
	for _, added := range []string{"Via", "Date", "Content-Type", "Server", "X-Sallyport-Request"} {
		if v, ok := a.Header[added]; ok {
			t.Errorf("the client got %s: %v", added, v)
		}
	}
}

func TestH128Truncation(t *testing.T) {
	begin(t)
	s := s1(t)
	const size, part = 1 << 20, 600 << 10
	script := func(host, head string, n int, end string, reset bool) {
		origin(host).SetProtocols("http/1.1")
		answer := "HTTP/1.1 200 OK\r\n" + head + "\r\n\r\n" + strings.Repeat("x", n) + end
		origin(host).SetScript(func(c lab.Conn, _ int) {
			_, _ = http.ReadRequest(bufio.NewReader(c)) // the answer is the same to all
			_, _ = io.WriteString(c, answer)
			if r, ok := c.(interface{ Reset() }); ok && reset {
				r.Reset()
			}
		})
	}
	for _, tt := range []struct {
		name, head string
		n          int
		end        string
		reset      bool
		whole      bool
	}{
		{"whole", "Content-Length: 1048576", size, "", false, true},
		{"short", "Content-Length: 1048576", part, "", false, false},
		{"chunks", "Transfer-Encoding: chunked", 0, fmt.Sprintf("%x\r\n%s\r\n", part, strings.Repeat("x", part)), false, false},
		{"reset", "Content-Length: 1048576", part, "", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := "h128-" + tt.name + ".good.test"
			script(host, tt.head, tt.n, tt.end, tt.reset)
			for _, h2 := range []bool{false, true} {
				for range 10 {
					before := s.Mark()
					a, err := lab.Try(s.Client(t, h2), lab.NewRequest(t, "GET", "https://"+host+"/", ""))
					if (err == nil && len(a.Body) == size) != tt.whole || err == nil && a.Status == 200 && !tt.whole {
						t.Fatalf("h2=%v: %d bytes, %v", h2, len(a.Body), err)
					}
					got := s.Decided(t, before, allowed(host))
					if tt.whole {
						continue
					}
					end := s.Gateway.Await(t, 2, audit.Filter{Req: got[2].Req, Kind: "http"})
					if e := end[len(end)-1]; e.Phase != audit.PhaseEnd || e.Error == nil {
						t.Errorf("the end is recorded as %s %+v", e.Phase, e.Error)
					}
				}
			}
			var exit *lab.Result
			if r := s.Command(t, "curl", "-sS", "--http1.1", "-o", "/dev/null", "https://"+host+"/"); (r.Code == 0) != tt.whole {
				exit = &r
			}
			if exit != nil {
				t.Errorf("curl exits %d: %s", exit.Code, exit.Stderr)
			}
		})
	}
}
