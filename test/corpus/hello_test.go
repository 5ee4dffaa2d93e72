//go:build linux

package corpus_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"
)

// helloFor returns the bytes of a ClientHello for name, which may be one that
// crypto/tls would not send.
func helloFor(t *testing.T, name string) []byte {
	t.Helper()
	stand := bytes.Repeat([]byte("q"), len(name))
	c := &capture{}
	err := tls.Client(c, &tls.Config{ServerName: string(stand), InsecureSkipVerify: true}).Handshake()
	if !errors.Is(err, errCaptured) || bytes.Count(c.sent, stand) != 1 {
		t.Fatalf("no hello was made: %v", err)
	}
	return bytes.Replace(c.sent, stand, []byte(name), 1)
}

var errCaptured = errors.New("captured")

// capture keeps what is written and answers nothing.
type capture struct{ sent []byte }

func (c *capture) Write(p []byte) (int, error)      { c.sent = append(c.sent, p...); return len(p), nil }
func (c *capture) Read([]byte) (int, error)         { return 0, errCaptured }
func (c *capture) Close() error                     { return nil }
func (c *capture) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *capture) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *capture) SetDeadline(time.Time) error      { return nil }
func (c *capture) SetReadDeadline(time.Time) error  { return nil }
func (c *capture) SetWriteDeadline(time.Time) error { return nil }
