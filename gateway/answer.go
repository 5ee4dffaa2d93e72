package gateway

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"sallyport/gateway/inject"
	"sallyport/policy"
)

// response makes the answer ready for the sandbox's side, or makes one for a
// round trip that failed.
func (x *exchange) response(resp *http.Response, err error) *http.Response {
	if resp == nil {
		x.fail(err)
		return x.badGateway(err)
	}
	if resp.StatusCode < 100 || resp.StatusCode > 999 { // RFC 9110, section 15: net/http reads it and does not write it
		_ = resp.Body.Close() // it is not delivered
		x.fail(errNoStatus)
		return x.badGateway(errNoStatus)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !x.r.websocket || !switchesToWebSocket(resp.Header) {
			_ = resp.Body.Close() // the upstream speaks something that nobody asked for
			x.fail(errUnaskedUpgrade)
			return x.badGateway(errUnaskedUpgrade)
		}
		x.length = -1
		x.upgradeTo(resp.Body)
		return resp
	}
	for _, name := range splitList(resp.Header["Connection"]) {
		resp.Header.Del(name)
	}
	maps.DeleteFunc(resp.Header, func(name string, _ []string) bool { return notForSandbox(name) })
	if len(resp.Trailer) > 0 && x.r.in.ProtoMajor == 1 {
		resp.Header.Del("Content-Length") // HTTP/1.1 carries trailers in chunks only
		resp.ContentLength = -1
	}
	if x.r.head.Upgrade {
		resp.Header.Set("Connection", "close") // the guard no longer reads this connection
	}
	x.length = resp.ContentLength
	if _, ok := resp.Header["Date"]; !ok {
		resp.Header["Date"] = nil // absent stays absent
	}
	if _, ok := resp.Header["Content-Type"]; !ok {
		resp.Header["Content-Type"] = nil // the server would guess one
	}
	return resp
}

// notForSandbox reports whether a field of an answer ends at the gateway.
func notForSandbox(name string) bool {
	switch name {
	case "Connection", "Upgrade", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Transfer-Encoding":
		return true
	case "Alt-Svc": // RFC 7838: it leads to QUIC and to other hosts, neither of which can be had
		return true
	}
	return false
}

// errAnswerTooLong is errTooLong of an answer.
var errAnswerTooLong = fmt.Errorf("answer: %w", errTooLong)

// badGateway is the answer for an upstream that could not be had, or for a
// request that was ended here. It carries a class of error, never its text.
func (x *exchange) badGateway(err error) *http.Response {
	rec := &recorded{header: http.Header{}}
	answer(rec, x.r.in, x.explain(err))
	x.length = int64(len(rec.body))
	return &http.Response{StatusCode: rec.status, Header: rec.header, ContentLength: x.length,
		Body: io.NopCloser(strings.NewReader(string(rec.body))), Request: x.r.in}
}

// explain says in what way an admitted request failed.
func (x *exchange) explain(err error) refusal {
	f := refusal{Status: http.StatusBadGateway, Request: x.r.id, Host: x.r.c.host}
	if d := x.taken(err); d != nil {
		f.Reason, f.Detail = string(d.Reason), d.Message
		if f.Status = status(d.Reason); errors.Is(err, errAnswerTooLong) {
			f.Status = http.StatusBadGateway
		}
		return f
	}
	failure := failureOf(err)
	if failure.Class == "timeout" {
		f.Status = http.StatusGatewayTimeout
	}
	f.Reason, f.Detail = upstreamReason(failure.Class), "no answer from "+x.r.c.host+": "+failure.Detail
	return f
}

// upstreamReason is the reason that a refusal gives for a class of error.
func upstreamReason(class string) string { return "upstream_" + strings.TrimPrefix(class, "upstream_") }

// taken says why the gateway itself ended what it had admitted; nil if it did
// not.
func (x *exchange) taken(err error) *policy.Decision {
	if why := x.revoked.Load(); why != nil {
		return deny(policy.Revoked, why.Message)
	}
	if err == nil {
		return x.r.brokenBody()
	}
	refused, ok := errors.AsType[*inject.Refusal](err)
	switch {
	case errors.Is(err, errBudget):
		return deny(policy.ByteBudget, errBudget.Error())
	case errors.Is(err, errTooLong):
		return deny(policy.BodyTooLarge, errTooLong.Error())
	case errors.Is(err, errUnmaskable):
		return deny(policy.UninspectableBody, errUnmaskable.Error())
	case ok:
		return deny(refused.Reason, refused.Message)
	}
	return x.r.brokenBody()
}

// brokenBody says how the framing of the request's body is broken, or returns
// nil.
func (r *request) brokenBody() *policy.Decision {
	if g := r.c.guard; g != nil && g.Broken() != nil {
		return violation(g.Broken())
	}
	return nil
}

// recorded keeps an answer of the gateway's own, to be sent by the engine.
type recorded struct {
	header http.Header
	status int
	body   []byte
}

// Header returns the fields of the answer.
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader keeps the status.
func (r *recorded) WriteHeader(code int) { r.status = code }

// Write keeps the body.
func (r *recorded) Write(p []byte) (int, error) {
	r.body = append(r.body, p...)
	return len(p), nil
}
