package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// Record types and alerts of TLS (RFC 8446, sections 5.1 and 6).
const (
	recordHandshake     = 22
	alertHandshake      = 40
	alertInternal       = 80
	alertUnrecognized   = 112 // unrecognized_name, RFC 6066, section 3
	extensionECH        = 0xfe0d
	maxHello            = 64 << 10 // bytes until a ClientHello is whole
	handshakeTimeoutMin = 10 * time.Second
)

// errNotOpened ends a handshake that is not to be completed here: the bytes
// are relayed, or the connection is refused.
var errNotOpened = errors.New("TLS is not opened")

// errNotRecorded ends one whose decision could not be recorded or no longer
// holds.
var errNotRecorded = errors.New("connection is not admitted")

// serveTLS reads the ClientHello, decides, and opens or relays the
// connection. A refusal was already found (and, unless the name was still
// unknown, recorded) before: such a connection is opened only to explain.
func (c *conn) serveTLS(ctx context.Context, first []byte, refusal *policy.Decision) {
	recorded := c.denied
	c.noteTLS(func(*audit.TLS) {})
	c.scheme = policy.HTTPS
	h := &helloConn{meter: c.client, recording: true,
		records: upstream.Records{Buffers: &buffers.records}, ahead: upstream.Ahead{Buffers: &buffers.records}}
	var d policy.Decision
	server := tls.Server(h, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			h.recording = false
			d = c.decideHello(hello, refusal)
			if err := c.recordHello(d, recorded); err != nil {
				return nil, fmt.Errorf("%w: %w", errNotRecorded, err)
			}
			if d.Relay == policy.RelayPassthrough {
				return nil, errNotOpened
			}
			config, err := c.openWith(d, hello)
			if err != nil {
				return nil, err
			}
			h.answering = true
			return config, nil
		},
	})
	deadline := time.Now().Add(max(c.g.Limits.HelloTimeout, handshakeTimeoutMin))
	_ = c.client.SetDeadline(deadline) // an error comes again from the first read
	err := server.HandshakeContext(ctx)
	_ = c.client.SetDeadline(time.Time{})
	switch {
	case d.Relay == policy.RelayPassthrough && errors.Is(err, errNotOpened):
		c.client.unread(h.take())
		c.relayPassthrough(ctx, d)
	case err != nil:
		c.helloFailed(h, err, d, recorded)
	default:
		h.open()
		state := server.ConnectionState()
		c.noteTLS(func(t *audit.TLS) { t.Version, t.ALPN = tlsVersion(state.Version), state.NegotiatedProtocol })
		c.g.front.tls(c, server, h)
	}
}

// decideHello judges the name in the ClientHello against the name behind the
// address, and asks policy.
func (c *conn) decideHello(hello *tls.ClientHelloInfo, refusal *policy.Decision) policy.Decision {
	c.sni = hello.ServerName
	ech := slices.Contains(hello.Extensions, uint16(extensionECH))
	c.noteTLS(func(t *audit.TLS) { t.ECH = ech })
	deny := func(r policy.Reason, message string) policy.Decision {
		return policy.Decision{Reason: r, Message: message}
	}
	if c.sni == "" {
		if c.host != "" && policy.IsIP(c.host) && refusal == nil {
			return c.snap.decide(c.request(policy.HTTPS))
		}
		if ech {
			return deny(policy.ECHUnsupported, "the ClientHello hides its server name")
		}
		return deny(policy.NoSNI, "the ClientHello has no server name")
	}
	if refused := c.snap.held().Name(c.sni); refused != nil {
		return deny(refused.Reason, refused.Message)
	}
	name, err := policy.CanonicalHost(c.sni)
	if err != nil {
		return deny(policy.BadHostname, "server name: "+err.Error())
	}
	if policy.IsIP(name) {
		return deny(policy.IPLiteral, "the server name is an address")
	}
	if c.denied {
		return *refusal
	}
	if c.host == "" { // the address of denied names
		c.host = name
		d := c.snap.decide(c.request(policy.HTTPS))
		if d.Verdict == policy.Allow {
			return deny(policy.StaleAddress, "the name was looked up before policy allowed it; look it up again")
		}
		return d
	}
	if name != c.host {
		return deny(policy.AuthorityMismatch, "the server name is not the name that was looked up for this address")
	}
	if c.internal {
		return policy.Decision{Verdict: policy.Allow, Reason: policy.GatewayName, Relay: policy.RelayIntercept}
	}
	d := c.snap.decide(c.request(policy.HTTPS))
	if d.Relay == policy.RelayPassthrough && ech {
		return deny(policy.ECHUnsupported, "a connection that is not opened must not hide a second server name")
	}
	return d
}

// recordHello writes the connection's decision, unless it was recorded when
// the refusal was found.
func (c *conn) recordHello(d policy.Decision, recorded bool) error {
	mode := "intercept"
	if d.Relay == policy.RelayPassthrough {
		mode = "passthrough"
	}
	c.noteTLS(func(t *audit.TLS) { t.Mode = mode })
	if d.Verdict == policy.Allow {
		if d.Relay == policy.RelayPassthrough {
			return nil // relayPassthrough records, with the address it dials
		}
		return c.admitConn(d)
	}
	c.refusal.Store(&d)
	if recorded {
		return nil
	}
	return c.recordDenial(d)
}

// openWith returns the configuration that completes the handshake: for a
// refused name too, so that the refusal can be read.
func (c *conn) openWith(d policy.Decision, hello *tls.ClientHelloInfo) (*tls.Config, error) {
	name := c.host
	if d.Verdict != policy.Allow {
		if c.sni == "" || !c.mayExplain() {
			return nil, errNotOpened
		}
		n, err := policy.CanonicalHost(hello.ServerName)
		if err != nil || policy.IsIP(n) {
			return nil, errNotOpened
		}
		name = n
	}
	return c.g.configs.forName(name)
}

// helloFailed ends a connection whose handshake did not complete.
func (c *conn) helloFailed(h *helloConn, err error, d policy.Decision, recorded bool) {
	switch {
	case h.recording && !recorded: // no whole ClientHello came
		d := policy.Decision{Reason: policy.ProtocolError, Message: "the TLS handshake is malformed or incomplete"}
		if errors.Is(err, errHelloTooLong) {
			d.Message = err.Error()
		}
		_ = c.recordDenial(d)
		h.alert(alertHandshake)
	case errors.Is(err, errNotRecorded): // reset already
	case errors.Is(err, errNotOpened): // refused, and not to be explained
		h.alert(alertUnrecognized)
	case h.answering:
		c.recordHandshakeFailure(err, h.last)
	case d.Verdict == policy.Allow: // no leaf could be minted
		c.g.Logger.Error("no certificate for a sandbox's connection", "host", c.host, "error", err)
		h.alert(alertInternal)
	}
	_ = c.client.Close() // what was to be said is said
}

// recordHandshakeFailure writes the decision about a handshake that the
// client broke off, with the reason where it is the common one. Of a connection
// that was refused it is no attempt of its own: that the client could not read
// why is an event.
func (c *conn) recordHandshakeFailure(err error, last []byte) {
	alert, distrusted := distrust(err, last)
	refused := c.refusal.Load() != nil
	if refused && !distrusted || c.client.revoked.Load() != nil {
		return
	}
	e := c.event(audit.KindTLS, audit.PhaseDecision)
	d := policy.Decision{Reason: policy.ProtocolError, Message: "the TLS handshake failed"}
	e.Error = &audit.Error{Class: "protocol", Detail: handshakeDetail(err)}
	if errors.Is(err, io.EOF) {
		d.Message = "the client closed the connection when it had seen the gateway's certificate; " + trustHint("")
	}
	if distrusted {
		d.Message = "the client does not trust the gateway's certificate authority; " + trustHint(alert)
		e.Error.Class = audit.RejectedCA
		c.noteTLS(func(t *audit.TLS) { t.Alert = alert })
		e.TLS = c.tls.Load()
	}
	if refused {
		e.Phase, e.Message, e.Severity = audit.PhaseEvent, "it could not read why it was refused: "+d.Message, audit.Info
	} else {
		e.decide(d)
	}
	c.g.recordOrLog(e)
}

// handshakeDetail is what may be recorded of a handshake error: the alert's
// name, or a word for what happened.
func handshakeDetail(err error) string {
	text := err.Error()
	if i := strings.Index(text, "tls: "); i >= 0 {
		return text[i:]
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the client closed the connection"
	case isTimeout(err):
		return "timeout"
	}
	return "the connection was reset"
}
