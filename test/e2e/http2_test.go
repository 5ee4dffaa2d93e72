//go:build linux

package e2e_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawH2 is an HTTP/2 connection on which any header block can be sent.
type rawH2 struct {
	net.Conn
	framer *http2.Framer
	next   uint32 // stream
}

// field is a header field as it is sent.
type field struct{ name, text string }

// newRawH2 begins HTTP/2 on c, on which h2 was agreed.
func newRawH2(t *testing.T, c net.Conn) *rawH2 {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	h := &rawH2{Conn: c, framer: http2.NewFramer(c, c), next: 1}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must(t, h.framer.WriteSettings())
	return h
}

// ask sends a request without a body and returns the fields of its answer, or
// how the other side refused.
func (h *rawH2) ask(fields ...field) (map[string]string, error) { return h.open(true, fields...) }

// open is ask for a stream that the request does not end, unless end is set.
func (h *rawH2) open(end bool, fields ...field) (map[string]string, error) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = enc.WriteField(hpack.HeaderField{Name: f.name, Value: f.text}) // to memory
	}
	id := h.next
	h.next += 2
	err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: end, EndHeaders: true})
	if err != nil {
		return nil, err
	}
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if err := h.framer.WriteSettingsAck(); err != nil {
					return nil, err
				}
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return nil, http2.StreamError{StreamID: id, Code: f.ErrCode}
			}
		case *http2.GoAwayFrame:
			return nil, http2.ConnectionError(f.ErrCode)
		case *http2.MetaHeadersFrame:
			if f.StreamID == id {
				out := map[string]string{}
				for _, hf := range f.Fields {
					out[hf.Name] = hf.Value
				}
				return out, nil
			}
		}
	}
}

// h2Config is of a client that speaks HTTP/2 for name.
func h2Config(name string) *tls.Config {
	return &tls.Config{ServerName: name, NextProtos: []string{"h2"}}
}

// isRefusal says whether err is how HTTP/2 refuses a stream or connection.
func isRefusal(err error) bool {
	var stream http2.StreamError
	var conn http2.ConnectionError
	return errors.As(err, &stream) || errors.As(err, &conn) || errors.Is(err, io.EOF)
}
