package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"sallyport/audit"
	"sallyport/policy"
)

// tunnelProtocol is how the client of a proxy is told that its tunnel is
// open, or why it is not.
type tunnelProtocol interface {
	opened() []byte
	refused(f refusal) []byte
}

// tunnel is a client's connection that is told only late that it is one: when
// the gateway first reads or writes beyond what was held. What ends before
// that is answered with its reason, as a proxy's client expects it.
type tunnel struct {
	net.Conn
	as tunnelProtocol
	c  *conn

	mu     sync.Mutex
	open   bool
	closed bool
}

func (p *proxied) tunnel(as tunnelProtocol) *tunnel { return &tunnel{Conn: p.nc, as: as} }

// establish tells the client, once, that the tunnel is open.
func (t *tunnel) establish() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open {
		return nil
	}
	if t.closed {
		return net.ErrClosed
	}
	t.open = true
	_, err := t.Conn.Write(t.as.opened())
	return err
}

func (t *tunnel) Read(b []byte) (int, error) {
	if err := t.establish(); err != nil {
		return 0, err
	}
	return t.Conn.Read(b)
}

func (t *tunnel) Write(b []byte) (int, error) {
	if err := t.establish(); err != nil {
		return 0, err
	}
	return t.Conn.Write(b)
}

// SetLinger is for a reset. A tunnel that is not open is not reset but
// answered.
func (t *tunnel) SetLinger(sec int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.Conn.(interface{ SetLinger(int) error })
	if !t.open || !ok {
		return nil
	}
	return c.SetLinger(sec)
}

// CloseWrite half-closes where the connection can.
func (t *tunnel) CloseWrite() error {
	if err := t.establish(); err != nil {
		return err
	}
	if c, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return net.ErrClosed
}

// farewell bounds the answer to a client that gets no tunnel.
const farewell = 500 * time.Millisecond

// Close closes the connection, after the reason if the tunnel never opened.
func (t *tunnel) Close() error {
	t.mu.Lock()
	tell := !t.open && !t.closed
	t.closed = true
	t.mu.Unlock()
	if !tell {
		return t.Conn.Close()
	}
	_ = t.Conn.SetDeadline(time.Now().Add(farewell)) // what fails is a client that has gone
	if _, err := t.Conn.Write(t.as.refused(t.reason())); err == nil {
		if c, ok := t.Conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(t.Conn, maxHello)) // unread bytes would make the kernel reset, and lose the answer
		}
	}
	return t.Conn.Close()
}

// reason is why the tunnel never opened.
func (t *tunnel) reason() refusal {
	c := t.c
	f := refusal{Request: c.id, Host: c.host}
	why, o := c.why.Load(), c.outcome.Load()
	if cut := c.client.revoked.Load(); why == nil && cut != nil {
		why = deny(policy.Revoked, cut.Message)
	}
	switch {
	case why != nil:
		f.Status, f.Reason, f.Detail = status(why.Reason), string(why.Reason), why.Message
	case o != nil && o.failure != nil:
		f.Status, f.Reason, f.Detail = http.StatusBadGateway, upstreamReason(o.failure.Class), "no connection to "+c.host+": "+o.failure.Detail
		if o.failure.Class == "timeout" {
			f.Status = http.StatusGatewayTimeout
		}
	default:
		f.Status, f.Reason, f.Detail = http.StatusServiceUnavailable, string(policy.AuditUnavailable), "the gateway could not go on"
	}
	return f
}

// httpTunnel is the answers to CONNECT.
type httpTunnel struct{}

func (httpTunnel) opened() []byte { return []byte("HTTP/1.1 200 Connection established\r\n\r\n") }

// refused gives the reason in the status line too: most clients show nothing
// else of an answer to CONNECT.
func (httpTunnel) refused(f refusal) []byte {
	line := audit.Escape("sallyport: "+f.Reason+": "+f.Detail+" (request "+f.Request+")", maxAnswerLine)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nX-Sallyport-Reason: %s\r\nX-Sallyport-Request: %s\r\n"+
		"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s\n",
		f.Status, asciiLine(line), f.Reason, f.Request, len(line)+1, line)
}

// maxAnswerLine bounds the text of an answer, in characters.
const maxAnswerLine = 400

// asciiLine is what of a line may stand in a status line.
func asciiLine(s string) string {
	b := []byte(s)
	for i, ch := range b {
		if ch < ' ' || ch > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}

// challengeFields are those of every answer that asks for a credential.
func challengeFields() http.Header {
	return http.Header{"Proxy-Authenticate": {`Basic realm="sallyport", charset="UTF-8"`}}
}

// challengeAnswer asks the client of a CONNECT for a credential and leaves the
// connection open for it.
func challengeAnswer(id string) string {
	d := noCredential()
	line := "sallyport: " + string(d.Reason) + ": " + d.Message + " (request " + id + ")\n"
	return fmt.Sprintf("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: %s\r\nX-Sallyport-Reason: %s\r\nX-Sallyport-Request: %s\r\n"+
		"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nCache-Control: no-store\r\n\r\n%s",
		challengeFields().Get("Proxy-Authenticate"), d.Reason, id, len(line), line)
}
