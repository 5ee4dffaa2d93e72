package inject

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// compressors are those of servers, decompressors those of clients.
func compressors() map[string]func(io.Writer) flusher {
	return map[string]func(io.Writer) flusher{
		"gzip":    func(w io.Writer) flusher { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) flusher { return zlib.NewWriter(w) },
		"br":      func(w io.Writer) flusher { return brotli.NewWriter(w) },
		"zstd":    func(w io.Writer) flusher { e, _ := zstd.NewWriter(w); return e },
	}
}

func decompress(t testing.TB, coding string, src io.Reader) io.Reader {
	t.Helper()
	var r io.Reader
	var err error
	switch coding {
	case "gzip":
		r, err = gzip.NewReader(src)
	case "deflate":
		r, err = zlib.NewReader(src)
	case "br":
		r = brotli.NewReader(src)
	case "zstd":
		r, err = zstd.NewReader(src)
	default:
		r = src
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func respond(coding string, body io.Reader, length int64) *http.Response {
	h := http.Header{"Content-Type": {"text/plain"}}
	if coding != "" {
		h.Set("Content-Encoding", coding)
	}
	if length >= 0 {
		h.Set("Content-Length", fmt.Sprint(length))
	}
	return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(body), ContentLength: length}
}

func TestSEC21ResponseBodies(t *testing.T) {
	m := maskerOf(t, reflected)
	text := strings.Repeat("some text. ", 3000) + reflected + strings.Repeat(" and more", 3000)
	for _, coding := range []string{"", "gzip", "deflate", "br", "zstd"} {
		t.Run("coding "+coding, func(t *testing.T) {
			body := []byte(text)
			if c := compressors()[coding]; c != nil {
				var b bytes.Buffer
				w := c(&b)
				_, _ = io.WriteString(w, text)
				_ = w.Close()
				body = b.Bytes()
			}
			resp := respond(coding, bytes.NewReader(body), int64(len(body)))
			resp.Header.Set("X-Echo", reflected)
			resp.Trailer = http.Header{"X-Late": nil}
			uses := map[string]int{}
			if err := m.Response(resp, func(name, place string) { uses[name+" in "+place]++ }); err != nil {
				t.Fatal(err)
			}
			resp.Trailer.Set("X-Late", reflected)
			got, err := io.ReadAll(decompress(t, coding, resp.Body))
			if err != nil || string(got) != strings.Replace(text, reflected, strings.Repeat("*", len(reflected)), 1) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			_, _ = io.Copy(io.Discard, resp.Body) // a decompressor need not read the end
			if uses["KEY_0 in response body"] != 1 || uses["KEY_0 in response header X-Echo"] != 1 || uses["KEY_0 in response trailer X-Late"] != 1 || shows(resp.Trailer.Get("X-Late"), reflected) {
				t.Errorf("uses %v, trailer %v", uses, resp.Trailer)
			}
			if announced := resp.ContentLength >= 0 && resp.Header.Get("Content-Length") != ""; announced != (coding == "") {
				t.Errorf("length %d, header %v", resp.ContentLength, resp.Header)
			}
		})
	}
	t.Run("raw deflate", func(t *testing.T) {
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, 5)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		resp := respond("deflate", &b, -1)
		if err := m.Response(resp, func(string, string) {}); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(decompress(t, "deflate", resp.Body)); err != nil || shows(string(got), reflected) || len(got) != len(text) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

func TestResponseThatCannotBeLookedInto(t *testing.T) {
	m := maskerOf(t, reflected)
	for name, change := range map[string]func(*http.Response){
		"unknown coding": func(r *http.Response) { r.Header.Set("Content-Encoding", "compress") },
		"two codings":    func(r *http.Response) { r.Header["Content-Encoding"] = []string{"gzip", "gzip"} },
		"several parts": func(r *http.Response) {
			r.Header.Set("Content-Type", "multipart/byteranges; boundary=b")
			r.StatusCode = 206
		},
		"short part":      func(r *http.Response) { r.Header.Set("Content-Range", "bytes 0-0/9"); r.StatusCode = 206 },
		"part of a coded": func(r *http.Response) { r.Header.Set("Content-Encoding", "gzip"); r.StatusCode = 206 },
	} {
		resp := respond("", strings.NewReader("x"), 1)
		change(resp)
		if err := m.Response(resp, func(string, string) {}); err == nil || strings.Contains(err.Error(), reflected) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	t.Run("short part of unknown length", func(t *testing.T) {
		for text, whole := range map[string]bool{"": true, "x": false, reflected[:4]: false, strings.Repeat("x", 31): false, strings.Repeat("x", 32): true} {
			resp := respond("", strings.NewReader(text), -1)
			resp.Header.Set("Content-Range", "bytes 0-9/99")
			resp.StatusCode = 206
			if err := m.Response(resp, func(string, string) {}); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(resp.Body); (err == nil) != whole || err == nil && string(got) != text || err != nil && len(got) > 0 {
				t.Errorf("%q: %q, %v", text, got, err)
			}
		}
	})
	t.Run("broken", func(t *testing.T) {
		for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
			resp := respond(coding, strings.NewReader("\x1f\x8b\x08no such thing at all \x00\xff"), -1)
			resp.Trailer = http.Header{"X-After": {reflected}}
			if err := m.Response(resp, func(string, string) {}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%s: a broken body is delivered as whole", coding)
			}
			if shows(resp.Trailer.Get("X-After"), reflected) {
				t.Errorf("%s: the trailers of a broken body hold the value", coding)
			}
		}
	})
	t.Run("trailers of an empty body", func(t *testing.T) {
		resp := respond("gzip", strings.NewReader(""), 0)
		resp.Trailer = http.Header{"X-After": {reflected}}
		if err := m.Response(resp, func(string, string) {}); err != nil || resp.ContentLength != 0 {
			t.Fatalf("%v, %d bytes", err, resp.ContentLength)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || len(got) != 0 || shows(resp.Trailer.Get("X-After"), reflected) {
			t.Errorf("%q, %v, %v", got, err, resp.Trailer)
		}
	})
	t.Run("no body", func(t *testing.T) {
		for name, change := range map[string]func(*http.Response){
			"HEAD":   func(r *http.Response) { r.Request = &http.Request{Method: "HEAD"} },
			"NoBody": func(r *http.Response) { r.Body = http.NoBody },
			"101":    func(r *http.Response) { r.StatusCode = 101 },
		} {
			resp := respond("gzip", strings.NewReader(""), 7)
			change(resp)
			was := resp.Body
			if err := m.Response(resp, func(string, string) {}); err != nil || resp.Body != was || resp.Header.Get("Content-Length") != "7" {
				t.Errorf("%s: %v %v", name, err, resp.Header)
			}
		}
	})
}

func TestCompressedStreamIsNotHeldBack(t *testing.T) {
	m := maskerOf(t, "sk-REAL0123456789")
	for coding, compressor := range compressors() {
		t.Run(coding, func(t *testing.T) {
			r, w := io.Pipe()
			resp := respond(coding, r, -1)
			if err := m.Response(resp, func(string, string) {}); err != nil {
				t.Fatal(err)
			}
			events := make(chan string)
			go func() {
				enc := compressor(w)
				for e := range events {
					_, _ = io.WriteString(enc, e)
					_ = enc.Flush()
				}
				_ = enc.Close()
				_ = w.Close()
			}()
			got := make(chan string)
			go func() {
				defer close(got)
				// The client's decompressor runs over what Response gives.
				pr, pw := io.Pipe()
				go func() { _, err := io.Copy(pw, resp.Body); pw.CloseWithError(err) }()
				dec := decompress(t, coding, pr)
				buf := make([]byte, 1024)
				for {
					n, err := dec.Read(buf)
					if n > 0 {
						got <- string(buf[:n])
					}
					if err != nil {
						return
					}
				}
			}()
			long := strings.Repeat("x", 16<<10) // as much as is read at a time
			for event, want := range map[string]string{"data: one\n\n": "data: one\n\n", long: long, "data: sk-REAL0123456789\n\n": "data: " + strings.Repeat("*", 17) + "\n\n"} {
				events <- event
				for text := ""; text != want; {
					select {
					case part := <-got:
						text += part
					case <-time.After(20 * time.Second):
						t.Fatalf("%q was held back: %q came", event, text)
					}
				}
			}
			close(events)
			for range got {
			}
		})
	}
}

func TestSEC14ResponseBombIsStreamed(t *testing.T) {
	var bomb bytes.Buffer
	w, _ := gzip.NewWriterLevel(&bomb, gzip.BestCompression)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	resp := respond("gzip", &bomb, int64(bomb.Len()))
	if err := maskerOf(t, reflected).Response(resp, func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, decompress(t, "gzip", resp.Body))
	if err != nil || n != 64<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if held := resp.Body.(*maskedBody).Reader.(*recoder).out.Cap(); held > 1<<20 {
		t.Errorf("%d bytes held", held)
	}
}
