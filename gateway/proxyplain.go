package gateway

import (
	"context"
	"net/http"
	"time"

	"sallyport/audit"
	"sallyport/gateway/http1"
	"sallyport/policy"
)

// servePlainProxy serves requests with absolute targets. Each may be for
// another host, and each is an attempt of its own; the connection between the
// client and the proxy is none. known is called when it is known whose it is,
// or when it is closed.
func (p *proxied) servePlainProxy(known func()) {
	c := p.conn(nil)
	p.known = known
	c.client, c.scheme, c.proxied = newMeter(p.nc), policy.HTTP, p
	c.client.unread(p.held)
	c.client.whenClosed(known)
	_ = p.nc.SetDeadline(time.Time{}) // the server sets its own
	p.g.front.plain(c)
}

// serveFront is the front's handler.
func (g *Gateway) serveFront(w http.ResponseWriter, in *http.Request) {
	c := connOf(in.Context())
	if c == nil || c.proxied == nil {
		g.serveHTTP(w, in)
		return
	}
	c.proxied.serve(c, w, in)
}

// serve gives one request with an absolute target a connection of its own, in
// what concerns its host and its sandbox, and lets it take the way of every
// request.
func (p *proxied) serve(front *conn, w http.ResponseWriter, in *http.Request) {
	head, _ := front.guard.Peek() // serveHTTP refuses a request without one
	c := p.conn(p.sandbox)
	c.client, c.guard, c.leaving, c.scheme = front.client, front.guard, front.leaving, policy.HTTP
	answer := &proxyAnswer{ResponseWriter: w}
	switch d := p.judge(front, c, head, in); {
	case head.Violation != nil:
	case d == nil:
	default:
		c.refusal.Store(d)
		if d.Reason == policy.UnknownSandbox {
			answer.code, answer.fields = http.StatusProxyAuthRequired, challengeFields()
		}
		if d.Reason == policy.ConnectRefused {
			answer.fields = http.Header{"Connection": {"close"}} // what follows may be no HTTP
		}
		w = answer
	}
	in.Header.Del("Proxy-Authorization")
	p.g.serveFrontRequest(w, in, c)
}

// serveFrontRequest is serveHTTP on a connection that is another than the
// server's.
func (g *Gateway) serveFrontRequest(w http.ResponseWriter, in *http.Request, c *conn) {
	g.serveHTTP(w, in.WithContext(context.WithValue(in.Context(), connKey{}, c)))
}

// judge sets the host of c by the target, and whose it is by the credential,
// or says what is wrong with them. What it lets pass is still to be decided.
func (p *proxied) judge(front, c *conn, head http1.Head, in *http.Request) *policy.Decision {
	if head.Violation != nil {
		return nil
	}
	if head.Authority != "" {
		host, port, err := policy.SplitAuthority(head.Authority, 80)
		if err != nil {
			return deny(policy.BadHostname, "request target: "+err.Error())
		}
		c.name(host, port)
	}
	sb, ok := p.authenticate(in.Header["Proxy-Authorization"])
	if !ok {
		d := noCredential()
		return &d
	}
	c.sandbox = sb
	if d := p.bind(front, c); d != nil {
		return d
	}
	switch {
	case head.Method == http.MethodConnect:
		return deny(policy.ConnectRefused, "CONNECT on a connection that other requests were made on; open a new one")
	case head.Authority == "":
		return deny(policy.ProtocolError, "this is a proxy: the request target must be an absolute URL")
	case head.Scheme != "http":
		return deny(policy.SchemeNotAllowed, "a proxy serves "+audit.Escape(head.Scheme, 16)+" by CONNECT")
	}
	if c.internal && c.dst.Port() != 80 {
		return deny(policy.PortNotAllowed, Name+" answers without TLS on port 80 only")
	}
	if d := c.judgeName(); policy.IsIP(c.host) && d.Verdict != policy.Allow {
		return &d
	}
	return nil // policy is asked once more, about the whole request
}

// bind counts the client's connection to the first sandbox that shows its
// credential on it, and lets no other use it.
func (p *proxied) bind(front, c *conn) *policy.Decision {
	switch {
	case p.sandbox == nil:
	case p.sandbox.ID == c.sandbox.ID:
		c.state = front.state
		return nil
	default:
		return deny(policy.UnknownSandbox, "the connection is another sandbox's")
	}
	c.state = p.g.state(c.sandbox.ID)
	out, ok := p.g.admit(c.state, c.connectionLimit())
	if !ok {
		return deny(policy.ConnectionLimit, "the sandbox holds too many connections at once")
	}
	p.known()
	front.sandbox, front.state = c.sandbox, c.state
	if err := p.g.opened.add(front); err != nil {
		out()
		front.client.reset()
		return deny(policy.Revoked, err.Error())
	}
	p.sandbox = c.sandbox // from now on: what add has not let in is asked again
	front.client.whenClosed(out)
	return nil
}

// proxyAnswer changes the status and fields of an answer of the gateway's
// own to what a proxy's client expects.
type proxyAnswer struct {
	http.ResponseWriter
	code   int
	fields http.Header
}

// WriteHeader sends the changed answer.
func (a *proxyAnswer) WriteHeader(code int) {
	for name, values := range a.fields {
		a.Header()[name] = values
	}
	if a.code != 0 {
		code = a.code
	}
	a.ResponseWriter.WriteHeader(code)
}
