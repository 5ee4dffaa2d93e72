package gateway

import (
	"net/http"
	"strings"

	"sallyport/gateway/http1"
	"sallyport/policy"
)

// readHead finds what was sent, byte for byte, and refuses what could be
// read in two ways.
func (r *request) readHead() *policy.Decision {
	target := r.in.RequestURI
	r.authority = r.in.Host
	if r.c.guard != nil {
		head, ok := r.c.guard.Next()
		if !ok {
			return deny(policy.ProtocolError, "the request has no head")
		}
		if v := head.Violation; v != nil {
			return violation(v)
		}
		if !head.Of(r.in) {
			r.w.Header().Set("Connection", "close") // whose heads the rest are is not known
			return deny(policy.ProtocolError, "the request is not the one that was read")
		}
		r.head, r.method, target = head, head.Method, head.Target
	} else if d := r.readHead2(); d != nil {
		return d
	}
	for i := range len(target) {
		if ch := target[i]; ch <= ' ' || ch == 0x7f || ch == '#' {
			return deny(policy.ProtocolError, "illegal character in the request target")
		}
	}
	if target == "*" && r.method != http.MethodOptions {
		return deny(policy.ProtocolError, "asterisk target with a method other than OPTIONS")
	}
	r.path, r.query, _ = strings.Cut(target, "?")
	if !strings.HasPrefix(r.path, "/") && r.path != "*" && r.method != http.MethodConnect {
		return deny(policy.ProtocolError, "the request target is not a path")
	}
	if r.c.guard == nil && r.in.Method != http.MethodConnect && len(r.in.Header[":protocol"]) > 0 {
		return deny(policy.Smuggling, "pseudo-header :protocol with a method other than CONNECT") // RFC 8441, section 4
	}
	return nil
}

// readHead2 is readHead of HTTP/2, where net/http has read the fields.
func (r *request) readHead2() *policy.Decision {
	if isExtendedConnect(r.in) {
		r.method, r.websocket = http.MethodGet, true
	}
	size, fields := len(r.in.RequestURI)+len(r.in.Host), 0
	for name, values := range r.in.Header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
		fields += len(values)
	}
	if l := r.g.Limits; size > l.MaxHead || fields > l.MaxFields {
		return deny(policy.HeaderTooLarge, "the request head is too large")
	}
	return nil
}

func violation(v *http1.Violation) *policy.Decision {
	switch {
	case v.TooLarge:
		return deny(policy.HeaderTooLarge, v.Detail)
	case v.Host:
		return deny(policy.AuthorityAmbiguous, v.Detail)
	case v.Malformed:
		return deny(policy.ProtocolError, v.Detail)
	}
	return deny(policy.Smuggling, v.Detail)
}

// checkConn answers a connection that was refused with its refusal, which is the
// policy's that made it. With another in force the next connection is decided.
func (r *request) checkConn() *policy.Decision {
	d := r.c.refusal.Load()
	if d != nil && r.snap != r.c.snap {
		r.snap, r.last = r.c.snap, true
	}
	return d
}

// checkMethod refuses what is never forwarded.
func (r *request) checkMethod() *policy.Decision {
	switch r.method {
	case http.MethodConnect:
		return deny(policy.ConnectRefused, "CONNECT is not forwarded; connect to the host directly")
	case http.MethodTrace:
		return deny(policy.MethodNotAllowed, "TRACE is not forwarded")
	}
	return nil
}

// checkAuthority holds the request to the one name of its connection.
func (r *request) checkAuthority() *policy.Decision {
	if r.authority == "" {
		if r.head.Authority == "" && (r.c.tls.Load() == nil || r.in.ProtoAtLeast(1, 1)) {
			return deny(policy.AuthorityAmbiguous, "the request names no host")
		}
		r.authority = r.c.host // HTTP/1.0 without Host, inside TLS or with an absolute target
	}
	scheme, standard := "https", uint16(443)
	if r.c.scheme == policy.HTTP {
		scheme, standard = "http", 80
	}
	if r.head.Authority != "" {
		if r.head.Scheme != scheme {
			return deny(policy.AuthorityMismatch, "the request target names another scheme than the connection's")
		}
		if !strings.EqualFold(r.head.Authority, r.authority) {
			return deny(policy.AuthorityAmbiguous, "the request target and Host name different authorities")
		}
	}
	if hosts := r.in.Header["Host"]; len(hosts) > 0 && !(len(hosts) == 1 && hosts[0] == r.authority) {
		return deny(policy.AuthorityAmbiguous, "the request has both an authority and another Host")
	}
	port := r.c.dst.Port()
	if !strings.Contains(r.authority, ":") {
		standard = port // a client that leaves the port out means this one
	}
	host, p, err := policy.SplitAuthority(r.authority, standard)
	switch {
	case err != nil:
		return deny(policy.BadHostname, "authority: "+err.Error())
	case host != r.c.host:
		return deny(policy.AuthorityMismatch, "the request is for another host than its connection")
	case p != port:
		return deny(policy.AuthorityMismatch, "the request is for another port than its connection")
	}
	return nil
}

// checkUpgrade admits WebSocket, drops the harmless offer of TLS (RFC 2817)
// and refuses every other upgrade.
func (r *request) checkUpgrade() *policy.Decision {
	offers := r.in.Header["Upgrade"]
	if len(offers) == 0 || r.websocket {
		return nil
	}
	for _, o := range splitList(offers) {
		switch {
		case strings.EqualFold(o, "websocket") && r.head.Upgrade:
			r.websocket = true
		case len(o) > 4 && strings.EqualFold(o[:4], "tls/"):
		default:
			return deny(policy.UpgradeNotAllowed, "the only upgrade that is forwarded is WebSocket")
		}
	}
	return nil
}

// splitList splits header values at commas.
func splitList(values []string) []string {
	var out []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.Trim(part, " \t"); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}
