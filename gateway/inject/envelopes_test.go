package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// envelope is a message of gRPC, compressed unless coding is "".
func envelope(coding, text string) string {
	var b bytes.Buffer
	flag := byte(0)
	if coding == "" {
		b.WriteString(text)
	} else {
		w := compressors()[coding](&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		flag = 1
	}
	return string(binary.BigEndian.AppendUint32([]byte{flag}, uint32(b.Len()))) + b.String()
}

func TestSEC22MessagesThatAreCompressedByThemselves(t *testing.T) {
	const value = "REAL-7f3a9c51e2d84b06"
	m := maskerOf(t, value)
	stars := strings.Repeat("*", len(value))
	for coding := range compressors() {
		for media, field := range map[string]string{"application/grpc": "Grpc-Encoding", "application/grpc-web+proto": "Grpc-Encoding", "application/connect+json; charset=utf-8": "Connect-Content-Encoding"} {
			sent := envelope(coding, "first "+value) + envelope("", value+" second") + envelope(coding, "third") + envelope("", "") + envelope(coding, value)
			want := envelope("", "first "+stars) + envelope("", stars+" second") + envelope(coding, "third") + envelope("", "") + envelope("", stars)
			for how, read := range map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader} {
				resp := respond("", read(strings.NewReader(sent)), int64(len(sent)))
				resp.Header.Set("Content-Type", media)
				resp.Header.Set(field, coding)
				hits := 0
				if err := m.Response(resp, func(string, string) { hits++ }); err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != want || hits != 3 || resp.ContentLength != -1 {
					t.Errorf("%s, %s, %s: %d hits, %v\n%q\nnot\n%q", media, coding, how, hits, err, got, want)
				}
			}
		}
	}
}

func TestMessagesThatCannotBeLookedInto(t *testing.T) {
	m := maskerOf(t, "REAL-7f3a9c51e2d84b06")
	resp := respond("", strings.NewReader(""), -1)
	resp.Header.Set("Content-Type", "application/grpc")
	resp.Header.Set("Grpc-Encoding", "snappy")
	if m.Response(resp, func(string, string) {}) == nil {
		t.Error("a coding that cannot be undone was taken")
	}
	whole := envelope("gzip", "text")
	for name, sent := range map[string]string{
		"cut":      whole[:len(whole)-3],
		"head":     whole[:3],
		"not gzip": "\x01\x00\x00\x00\x04text",
		"too long": "\x01\x7f\xff\xff\xfftext",
		"a bomb":   envelope("gzip", strings.Repeat("\x00", maxUnpacked+1)),
		"plain":    "\x00\x00\x00\x00\x09text",
	} {
		r := m.messages(binaryEnvelopes, "gzip", strings.NewReader(sent), noHit, false)
		if _, err := io.ReadAll(r); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s ended well: %v", name, err)
		}
	}
}

// FuzzEnvelopes: whatever comes, nothing of a value goes on, and what holds
// none goes on as it came.
func FuzzEnvelopes(f *testing.F) {
	f.Add([]byte(envelope("gzip", "a REAL-7f3a9c51e2d84b06")+envelope("", "b")), uint8(1))
	f.Add([]byte("\x01\x00\x00\x00\x00\x80\x00\x00\x00\x02ab"), uint8(200))
	f.Add([]byte("\x00\x00\x00\x00\x08a REAL-7f3a9c51e2d84b06"), uint8(30)) // over the bound of two messages
	m := maskerOf(f, "REAL-7f3a9c51e2d84b06")
	f.Fuzz(func(t *testing.T, sent []byte, n uint8) {
		found := false
		r := m.messages(binaryEnvelopes, "gzip", &pieces{bytes.NewReader(sent), int(n) + 1}, func(string) { found = true }, false)
		got, err := io.ReadAll(r)
		if strings.Contains(string(got), "REAL-7f3a9c51e2d84b06") {
			t.Errorf("%q gives %q", sent, got)
		}
		if !found && err == nil && !bytes.Equal(got, sent) {
			t.Errorf("%q became %q", sent, got)
		}
	})
}

// TestMessagesWhoseCodingIsNotSaid: a message that is compressed, although the
// answer does not say how, does not go on; what is not compressed does.
func TestMessagesWhoseCodingIsNotSaid(t *testing.T) {
	const value = "REAL-7f3a9c51e2d84b06"
	m := maskerOf(t, value)
	stars := strings.Repeat("*", len(value))
	trailers := "\x80\x00\x00\x00\x0dgrpc-status:0"
	plain, packed := envelope("", "you sent "+value)+envelope("", "")+trailers, envelope("", "first")+envelope("gzip", "you sent "+value)
	base64of := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, tt := range map[string]struct{ media, named, sent, want string }{
		"gRPC":                    {"application/grpc", "", plain, strings.ReplaceAll(plain, value, stars)},
		"identity":                {"application/grpc+proto", "identity", plain, strings.ReplaceAll(plain, value, stars)},
		"Connect":                 {"application/connect+json", "", plain, strings.ReplaceAll(plain, value, stars)},
		"text":                    {"application/grpc-web-text", "", base64of("\x00\x00\x00\x00\x04text") + base64of(trailers), base64of("\x00\x00\x00\x00\x04text") + base64of(trailers)},
		"compressed gRPC":         {"application/grpc", "", packed, ""},
		"compressed, identity":    {"application/grpc-web+proto", "identity", packed, ""},
		"compressed Connect":      {"application/connect+proto", "", packed, ""},
		"compressed trailers":     {"application/grpc-web", "", "\x81" + packed[1:], ""},
		"compressed text":         {"application/grpc-web-text+proto", "", base64of(packed), ""},
		"compressed text, pieces": {"application/grpc-web-text+proto", "", base64of(packed[:13]) + "\r\n" + base64of(packed[13:]), ""},
		"no text":                 {"application/grpc-web-text", "", "AA=A" + base64of(packed), ""},
		"named text":              {"application/grpc-web-text", "gzip", base64of(packed), "refused"},
	} {
		for _, coding := range []string{"", "gzip"} {
			body := tt.sent
			if coding != "" {
				var b bytes.Buffer
				w := compressors()[coding](&b)
				_, _ = io.WriteString(w, body)
				_ = w.Close()
				body = b.String()
			}
			resp := respond(coding, iotest.OneByteReader(strings.NewReader(body)), int64(len(body)))
			resp.Header.Set("Content-Type", tt.media)
			if tt.named != "" {
				resp.Header.Set("Grpc-Encoding", tt.named)
			}
			err := m.Response(resp, func(string, string) {})
			if (err != nil) != (tt.want == "refused") {
				t.Fatalf("%s, %q: %v", name, coding, err)
			}
			if err != nil {
				continue
			}
			got, err := io.ReadAll(decompress(t, coding, resp.Body))
			if (err == nil) != (tt.want != "") || err == nil && string(got) != tt.want || strings.Contains(string(got), value) {
				t.Errorf("%s, %q: %q, %v", name, coding, got, err)
			}
		}
	}
}

// FuzzTextMessages: what goes on is what came, and nothing of it is a message
// that is compressed.
func FuzzTextMessages(f *testing.F) {
	f.Add([]byte("AAAAAAR0ZXh0gAAAAA1ncnBjLXN0YXR1czow"), uint8(3))
	f.Add([]byte("AAAAAAA=AQAAAAF4"), uint8(1))
	f.Add([]byte("AA=A"), uint8(0))
	f.Fuzz(func(t *testing.T, sent []byte, n uint8) {
		got, err := io.ReadAll(&textMessages{src: &pieces{bytes.NewReader(sent), int(n) + 1}})
		if !bytes.HasPrefix(sent, got) || err == nil && len(got) != len(sent) {
			t.Fatalf("%q became %q, %v", sent, got, err)
		}
		whole, _ := base64.StdEncoding.DecodeString(string(sent))
		for err == nil && len(whole) >= envelopeHead {
			if whole[0]&1 != 0 {
				t.Fatalf("%q went on", sent)
			}
			size := uint64(binary.BigEndian.Uint32(whole[1:envelopeHead]))
			whole = whole[min(uint64(len(whole)), envelopeHead+size):]
		}
	})
}
