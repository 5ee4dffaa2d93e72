package gateway

import (
	"errors"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"sallyport/gateway/inject"
	"sallyport/policy"
)

// outgoing makes the request as it is to leave: the same method, target,
// fields and body, less what is between two hops, with the secrets in place.
func (x *exchange) outgoing() (*http.Request, error) {
	r := x.r
	out := r.in.WithContext(x.context()) // a copy
	if out.Header = r.header; r.changesHeader() {
		out.Header = copyOf(r.header)
	}
	out.RequestURI = "" // as net/http wants it of who asks
	out.URL = r.outgoingURL()
	if out.URL.Opaque == "" && out.URL.EscapedPath() != r.path {
		return nil, errTarget
	}
	out.Host = r.authority
	if r.in.ProtoMajor == 2 && isExtendedConnect(r.in) {
		upgradeExtendedConnect(out)
	} else {
		if r.in.ContentLength == 0 {
			out.Body = http.NoBody
		} else {
			most, _ := r.meters.maxima()
			x.asking.Store(true)
			src := inject.WatchTrailers(inject.WatchBody(r.source(), "body", r.heldNow), r.in, r.heldNow)
			out.Body = &requestBody{src: src, x: x, most: most}
		}
	}
	if !r.saysAgent() {
		out.Header["User-Agent"] = nil // absent stays absent
	}
	if r.plan == nil {
		return out, nil
	}
	if r.in.ProtoMajor == 2 {
		// What is put into a body may need all of it. Of HTTP/1.1 the guard
		// waits no longer than this.
		_ = x.control.SetReadDeadline(time.Now().Add(r.g.Limits.StallTimeout)) // HTTP/2 always has it
		defer func() { _ = x.control.SetReadDeadline(time.Time{}) }()
	}
	r.plan.Hold(r.holdMore)
	r.plan.Within((*room)(r))
	return out, r.plan.Apply(out, r.values)
}

// errTarget refuses a target that would leave as other bytes than those that
// were decided on.
var errTarget = errors.New("the request target cannot be sent on as it is")

// changesHeader says whether the header that leaves is another than the one
// that was decided on, which is not written to.
func (r *request) changesHeader() bool {
	return r.plan != nil && !r.plan.Empty() || !r.saysAgent() || isExtendedConnect(r.in)
}

func (r *request) saysAgent() bool {
	_, ok := r.header["User-Agent"]
	return ok
}

// copyOf returns a header of which fields may be set and taken out; the lines
// of those that are not are h's.
func copyOf(h http.Header) http.Header {
	out := make(http.Header, len(h)+1) // see User-Agent
	for name, lines := range h {
		out[name] = slices.Clip(lines)
	}
	return out
}

// outgoingURL names the request's target so that its bytes stay as they are.
func (r *request) outgoingURL() *url.URL {
	u := &r.url
	*u = url.URL{Scheme: "http", Host: r.c.recorded().authority,
		Path: r.in.URL.Path, RawPath: r.in.URL.RawPath, RawQuery: r.query,
		ForceQuery: r.query == "" && strings.HasSuffix(r.in.RequestURI, "?")}
	if r.c.scheme == policy.HTTPS {
		u.Scheme = "https"
	}
	if u.EscapedPath() != r.path && r.path != "*" && !strings.HasPrefix(r.path, "//") {
		u.Opaque = r.path // net/url would write these bytes in another way
	}
	return u
}

// hopByHop reports whether a field is for the next hop, whatever Connection
// names.
func hopByHop(name string) bool {
	switch name {
	case "Keep-Alive", "Te", "Transfer-Encoding", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Http2-Settings":
		return true
	}
	return false
}

// forNextHop reports whether a field may not leave as it came.
func forNextHop(name string) bool { return hopByHop(name) || name == "Connection" || name == "Upgrade" }

// settleHeader makes the header as it is to leave, but for the secrets. Nothing
// is decided by a field that does not reach the host: a client takes any out by
// naming it in Connection.
func (r *request) settleHeader() *policy.Decision {
	r.header = r.in.Header
	if isExtendedConnect(r.in) {
		return nil
	}
	for _, name := range splitList(r.in.Header["Connection"]) {
		if endToEnd(name) {
			return deny(policy.ProtocolError, "the Connection field names one that is not for one hop")
		}
	}
	for name := range r.in.Header {
		if forNextHop(name) {
			r.header = r.in.Header.Clone()
			dropHopByHop(r.header, r.websocket)
			break
		}
	}
	r.settleRange()
	return nil
}

// settleRange takes a range out of a request whose answer has to come whole.
func (r *request) settleRange() {
	if len(r.header["Range"])+len(r.header["If-Range"]) == 0 || r.snap == nil || r.snap.Inject == nil ||
		!r.rangesSpent() || !r.snap.Inject.MayAnswer(r.c.host) {
		return
	}
	r.header = r.header.Clone()
	r.header.Del("Range")
	r.header.Del("If-Range")
}

// endToEnd reports whether a field says how a request is read or who asks. No
// client means it for the next hop alone.
func endToEnd(name string) bool {
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Authorization", "Cookie", "Host", "Trailer", "Transfer-Encoding":
		return true
	}
	return strings.HasPrefix(name, "Content-")
}

// dropHopByHop removes what is meant for the next hop only (RFC 9110,
// section 7.6.1). A WebSocket handshake keeps its offer.
func dropHopByHop(h http.Header, websocket bool) {
	trailers := false
	for _, te := range splitList(h["Te"]) {
		trailers = trailers || strings.EqualFold(te, "trailers")
	}
	for _, name := range splitList(h["Connection"]) {
		if !websocket || !strings.EqualFold(name, "upgrade") {
			h.Del(textproto.TrimString(name))
		}
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return hopByHop(name) })
	h.Del("Connection")
	if trailers {
		h.Set("Te", "trailers")
	}
	if websocket {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", "websocket")
	} else {
		h.Del("Upgrade")
	}
}
