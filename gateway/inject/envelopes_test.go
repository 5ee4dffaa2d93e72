package inject

import (
	"bytes"
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
		r, err := m.envelopes("gzip", strings.NewReader(sent), noHit)
		if err != nil {
			t.Fatal(err)
		}
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
		r, err := m.envelopes("gzip", &pieces{bytes.NewReader(sent), int(n) + 1}, func(string) { found = true })
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if strings.Contains(string(got), "REAL-7f3a9c51e2d84b06") {
			t.Errorf("%q gives %q", sent, got)
		}
		if !found && err == nil && !bytes.Equal(got, sent) {
			t.Errorf("%q became %q", sent, got)
		}
	})
}
