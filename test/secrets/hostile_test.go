//go:build linux

package secrets_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"sallyport/audit"
	"sallyport/test/lab"
)

// rawOrigin is an HTTPS origin on a port of its own that answers each request
// with bytes as they stand in answers by the request's path, VALUE replaced by
// the credential that it was sent, and closes.
func rawOrigin(t *testing.T, host string, answers map[string]string) {
	t.Helper()
	leaf, err := world.lab.Origins.CA.Leaf(host, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := world.lab.Net.Listen("tcp", lab.Spare+":9445")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	world.lab.DNS.Set(host, "60 A "+lab.Spare)
	secure := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*leaf}})
	go func() {
		for {
			c, err := secure.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				value := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				_, _ = io.WriteString(c, strings.ReplaceAll(answers[r.URL.Path], "VALUE", value)) // the gateway may have gone
			}()
		}
	}()
}

// pack compresses a text in which VALUE was replaced before.
func pack(t *testing.T, text string, open func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := open(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// hostileAnswers are answers by the request's path. What is compressed holds
// value itself.
func hostileAnswers(t *testing.T, value string) map[string]string {
	t.Helper()
	zip := func(text string) string {
		return pack(t, text, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	}
	raw := pack(t, "it is "+value, func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 9); return f })
	packed := pack(t, "it is "+value, func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z })
	encoded := func(coding, body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", coding, len(body), body)
	}
	two := zip("it is "+value[:9]) + zip(value[9:]+" in two members")
	answers := map[string]string{
		"/reason":           "HTTP/1.1 401 Bad key VALUE\r\nContent-Length: 0\r\n\r\n",
		"/status":           "HTTP/1.1 4VALUE\r\n\r\n",
		"/no-http":          "VALUE is no HTTP\r\n\r\n",
		"/field":            "HTTP/1.1 200 OK\r\nX VALUE\r\n\r\n",
		"/field-name":       "HTTP/1.1 200 OK\r\nX-VALUE: 1\r\nContent-Length: 0\r\n\r\n",
		"/length":           "HTTP/1.1 200 OK\r\nContent-Length: VALUE\r\n\r\n",
		"/chunk":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nVALUE\r\nx\r\n0\r\n\r\n",
		"/chunk-extension":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=VALUE\r\nx\r\n0\r\n\r\n",
		"/coding":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: VALUE\r\n\r\n",
		"/trailer-name":     "HTTP/1.1 200 OK\r\nTrailer: X-VALUE\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-VALUE: 1\r\n\r\n",
		"/upgrade":          "HTTP/1.1 101 Switching VALUE\r\nConnection: upgrade\r\nUpgrade: VALUE\r\n\r\nVALUE",
		"/early":            "HTTP/1.1 103 Early VALUE\r\nLink: </VALUE>; rel=preload\r\nX-VALUE: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"/location":         "HTTP/1.1 302 Found\r\nLocation: https://other.test/#t=VALUE\r\nRefresh: 0; url=/VALUE\r\nServer-Timing: a;desc=\"VALUE\"\r\nSet-Cookie: k=VALUE; Path=/VALUE\r\nContent-Length: 0\r\n\r\n",
		"/until-close":      "HTTP/1.1 200 OK\r\n\r\nit is VALUE",
		"/short":            "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nit is VALUE",
		"/long":             "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nit VALUE and more",
		"/second":           "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 VALUE\r\n\r\nVALUE",
		"/parts":            "HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=b\r\n\r\n--b\r\nContent-Range: bytes 0-9/99\r\n\r\n" + value[:10] + "\r\n--b--\r\n",
		"/several":          encoded("gzip, br", zip("it is "+value)),
		"/twice":            encoded("gzip, gzip", zip(zip("it is "+value))),
		"/members":          encoded("gzip", two),
		"/garbage-behind":   encoded("gzip", zip("it is "+value)+value),
		"/raw-deflate":      encoded("deflate", raw),
		"/raw-and-behind":   encoded("deflate", raw+value),
		"/zstd-and-skipped": encoded("zstd", "\x50\x2a\x4d\x18\x17\x00\x00\x00"+value+packed),
		"/says-gzip":        encoded("gzip", "it is "+value),
		"/unknown":          encoded("x-"+value, "it is "+value),
		"/dictionary":       encoded("dcz", packed),
	}
	answers["/utf-16"] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-16le\r\n\r\n" + strings.Join(strings.Split("it is "+value, ""), "\x00")
	return answers
}

// TestHostileAnswers: however an origin frames what it sends back, right or
// wrong, nothing of the value comes through, neither to the sandbox nor into
// the log.
func TestHostileAnswers(t *testing.T) {
	const host, value = "raw.mask.test", "REAL-4a9e70bb5c31-value"
	answers := hostileAnswers(t, value)
	rawOrigin(t, host, answers)
	s := start(t, strings.Replace(maskPolicy, "addresses = DOCS", "addresses = DOCS\n    ports     = [9445]", 1), value)
	wide := strings.Join(strings.Split(value, ""), "\x00")
	for path := range answers {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			for _, h2 := range []bool{false, true} {
				req := lab.NewRequest(t, method, "https://"+host+":9445"+path, "", "Authorization: Bearer $API_KEY")
				resp, err := s.Client(t, h2).Do(req)
				if err != nil {
					s.keep(err.Error())
					continue
				}
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					s.keep(err.Error())
				}
				_ = resp.Body.Close() // it has been read
				s.keep(resp.Status, fmt.Sprint(resp.Header, resp.Trailer), string(b), unpacked(b))
				if strings.Contains(string(b)+unpacked(b), wide) {
					t.Errorf("%s %s: the value came back in UTF-16", method, path)
				}
				maps.Copy(resp.Header, resp.Trailer)
				for name := range resp.Header {
					if strings.Contains(strings.ToLower(name), strings.ToLower(value)) {
						t.Errorf("%s %s, h2=%v: the value came back as the name of a field", method, path, h2)
					}
				}
			}
		}
	}
	time.Sleep(100 * time.Millisecond) // the log's last lines
	s.Mark()
	for _, e := range s.Events(audit.Filter{}) {
		if text := fmt.Sprintf("%+v %+v %+v", *e, e.HTTP, e.Error); strings.Contains(text, value) {
			t.Errorf("the log has it: %s", text)
		}
	}
}

// unpacked is what a body may stand for.
func unpacked(b []byte) string {
	var out strings.Builder
	if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
		_, _ = io.Copy(&out, z) // as far as it goes
	}
	if z, err := zstd.NewReader(bytes.NewReader(b)); err == nil {
		_, _ = io.Copy(&out, z)
		z.Close()
	}
	_, _ = io.Copy(&out, flate.NewReader(bytes.NewReader(b)))
	if len(b) > 2 {
		_, _ = io.Copy(&out, flate.NewReader(bytes.NewReader(b[2:])))
	}
	return out.String()
}
