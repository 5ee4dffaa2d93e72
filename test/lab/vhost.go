//go:build linux

package lab

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"slices"
	"sync"
)

// Vhost is the origin of one name and the log of all that came for it.
type Vhost struct {
	Name    string
	origins *Origins

	mu        sync.Mutex
	raw       bytes.Buffer
	requests  []*Request
	failures  []string // handshakes that were not completed
	conns     int
	cert      *tls.Certificate
	protocols []string
	script    func(Conn, int)
	handler   http.Handler
}

// Request is a request that an origin received.
type Request struct {
	Proto  string              `json:"proto"`
	Method string              `json:"method"`
	Target string              `json:"target"` // as received
	Host   string              `json:"host"`
	Header map[string][]string `json:"header"`
	Body   string              `json:"body"`

	Trailer map[string][]string `json:"trailer,omitempty"`
}

// Conn is the clear side of a connection that a script serves.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// SetCertificate replaces the certificate.
func (v *Vhost) SetCertificate(c *tls.Certificate) { v.note(func() { v.cert = c }) }

// SetProtocols replaces the protocols offered by ALPN: h2 and http/1.1.
func (v *Vhost) SetProtocols(p ...string) { v.note(func() { v.protocols = p }) }

// SetScript serves every connection, n counting from 0, with bytes instead of
// the HTTP server. It is over when f returns.
func (v *Vhost) SetScript(f func(c Conn, n int)) { v.note(func() { v.script = f }) }

// SetHandler serves requests with h.
func (v *Vhost) SetHandler(h http.Handler) { v.note(func() { v.handler = h }) }

// Raw returns all bytes that came, opened. HTTP/2 is in frames.
func (v *Vhost) Raw() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.raw.Bytes())
}

// Requests returns what came, as far as it has: a request that was broken off
// may still be read.
func (v *Vhost) Requests() []*Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := slices.Clone(v.requests)
	for i, q := range out {
		now := *q
		out[i] = &now
	}
	return out
}

// Failures returns the errors of handshakes that came to nothing.
func (v *Vhost) Failures() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.failures)
}

// Conns returns how many connections were opened.
func (v *Vhost) Conns() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.conns
}

// Silent says whether nothing came at all.
func (v *Vhost) Silent() bool { return len(v.Raw()) == 0 && len(v.Requests()) == 0 }

func (v *Vhost) note(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

// maxRaw bounds what is kept of large uploads, in bytes.
const maxRaw = 8 << 20

func (v *Vhost) record(p []byte) {
	v.note(func() {
		if v.raw.Len() < maxRaw {
			v.raw.Write(p)
		}
	})
}

func (v *Vhost) config() (*tls.Config, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cert == nil {
		c, err := v.origins.CA.Leaf(v.Name, nil)
		if err != nil {
			return nil, err
		}
		v.cert = c
	}
	return &tls.Config{Certificates: []tls.Certificate{*v.cert}, NextProtos: v.protocols}, nil
}

// take counts a connection in.
func (v *Vhost) take() (func(Conn, int), int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.conns++
	return v.script, v.conns - 1
}

// quiet drops what net/http says of clients that go away.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
