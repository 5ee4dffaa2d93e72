package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// exchange is one admitted request on its way, and its answer.
type exchange struct {
	r      *request
	cancel context.CancelCauseFunc

	info     upstream.Info
	handed   time.Time // when the request was handed upstream; zero before
	status   int
	length   int64 // of the answer's body as announced; -1 when it is not
	sent     atomic.Int64
	received atomic.Int64
	failed   atomic.Pointer[error] // of the round trip or of a body
	early    earlyHints
	revoked  atomic.Pointer[policy.Decision]
	hijacked atomic.Pointer[hijackedConn]
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// errRevokedExchange is why a request was cancelled whose allow was taken
// back.
var errRevokedExchange = errors.New("the policy no longer allows the request")

// revoke cuts the exchange because policy took its allow back.
func (x *exchange) revoke(why policy.Decision) {
	x.revoked.Store(&why)
	x.cancel(errRevokedExchange)
	if h := x.hijacked.Load(); h != nil {
		_ = h.Close() // whoever copies sees it
	}
}

// outgoing makes the request as it is to leave: the same method, target,
// fields and body, less what is between two hops, with the secrets in place.
func (x *exchange) outgoing(ctx context.Context) (*http.Request, error) {
	r := x.r
	ctx = context.WithValue(ctx, exchangeKey{}, x)
	ctx = upstream.WithInfo(upstream.WithRoute(ctx, r.route), &x.info)
	ctx = httptrace.WithClientTrace(ctx, x.early.trace(r))
	out := r.in.WithContext(ctx)
	out.Header = r.in.Header.Clone()
	out.URL = outgoingURL(r)
	out.Host = r.authority
	if r.in.ProtoMajor == 2 && isExtendedConnect(r.in) {
		upgradeExtendedConnect(out)
	} else {
		dropHopByHop(out.Header, r.websocket)
		if r.in.ContentLength == 0 {
			out.Body = http.NoBody
		} else {
			most, _ := r.meters.maxima()
			out.Body = &requestBody{ReadCloser: r.in.Body, x: x, most: most}
		}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // absent stays absent
	}
	if r.plan != nil {
		if err := r.plan.Apply(out, r.values); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// outgoingURL names the request's target so that its bytes stay as they are.
func outgoingURL(r *request) *url.URL {
	u := &url.URL{Scheme: "http", Host: net.JoinHostPort(r.c.host, strconv.Itoa(int(r.c.dst.Port()))),
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
	for _, name := range []string{"Keep-Alive", "Te", "Transfer-Encoding", "Proxy-Connection", "Proxy-Authorization", "Http2-Settings"} {
		h.Del(name)
	}
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

// roundTrip sends out and returns the answer.
func (x *exchange) roundTrip(out *http.Request) (*http.Response, error) {
	x.handed = x.r.g.Now()
	resp, err := x.r.g.Upstream.Transport(x.r.c.sandbox.ID).RoundTrip(out)
	if err != nil {
		x.fail(err)
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_, most := x.r.meters.maxima()
		if most > 0 && resp.ContentLength > most {
			_ = resp.Body.Close() // it is not read
			x.fail(errTooLong)
			return nil, errTooLong
		}
		resp.Body = &answerBody{ReadCloser: resp.Body, x: x, most: most}
	}
	return resp, nil
}

// response makes the answer ready for the sandbox's side, or makes one for a
// round trip that failed.
func (x *exchange) response(resp *http.Response, err error) *http.Response {
	if resp == nil {
		x.fail(err)
		return x.badGateway(err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !x.r.websocket || !switchesToWebSocket(resp.Header) {
			_ = resp.Body.Close() // the upstream speaks something that nobody asked for
			x.fail(errUnaskedUpgrade)
			return x.badGateway(errUnaskedUpgrade)
		}
		x.length = -1
		return resp
	}
	for _, name := range splitList(resp.Header["Connection"]) {
		resp.Header.Del(name)
	}
	for _, name := range []string{"Connection", "Upgrade", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Transfer-Encoding"} {
		resp.Header.Del(name)
	}
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

var errUnaskedUpgrade = errors.New("the upstream switched protocols without being asked")

// badGateway is the answer for an upstream that could not be had. It carries
// a class of error, never its text.
func (x *exchange) badGateway(err error) *http.Response {
	class, detail := upstream.ErrorClass(err)
	for _, own := range []error{errUnaskedUpgrade, errBudget, errTooLong} {
		if errors.Is(err, own) {
			class, detail = "protocol", own.Error()
		}
	}
	f := refusal{Status: http.StatusBadGateway, Reason: "upstream_" + class, Request: x.r.id, Host: x.r.c.host,
		Detail: "no answer from " + x.r.c.host + ": " + detail}
	if class == "timeout" {
		f.Status = http.StatusGatewayTimeout
	}
	rec := &recorded{header: http.Header{}}
	answer(rec, x.r.in, f)
	x.length = int64(len(rec.body))
	return &http.Response{StatusCode: rec.status, Header: rec.header, ContentLength: x.length,
		Body: io.NopCloser(strings.NewReader(string(rec.body))), Request: x.r.in}
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

// fail notes why the exchange, or a part of it, did not happen. The first
// reason stays.
func (x *exchange) fail(err error) {
	if err != nil {
		x.failed.CompareAndSwap(nil, &err)
	}
}

// failure returns what fail noted, or nil.
func (x *exchange) failure() error {
	if p := x.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// finish ends the sandbox's side: what was hijacked is closed, and an answer
// that broke off upstream is broken off here too, so that it is never taken
// for a whole one.
func (x *exchange) finish() {
	if h := x.hijacked.Load(); h != nil {
		_ = h.Close()
		return
	}
	if x.failure() != nil && x.status != 0 && x.length != 0 && x.truncated() {
		panic(http.ErrAbortHandler)
	}
}

// truncated says whether an answer of the upstream's broke off.
func (x *exchange) truncated() bool {
	var b *bodyError
	return errors.As(x.failure(), &b)
}

// end writes the end event.
func (x *exchange) end() {
	r := x.r
	x.early.stop()
	e := r.event(r.kind(), audit.PhaseEnd)
	e.HTTP.Status = x.status
	e.HTTP.ReqBytes, e.HTTP.RespBytes = x.sent.Load(), x.received.Load()
	e.Bytes = &audit.Bytes{Sent: x.sent.Load(), Received: x.received.Load()}
	e.Upstream = upstreamOf(x.info)
	whole := r.g.Now().Sub(r.started)
	e.DurationMS = milliseconds(whole)
	if !x.handed.IsZero() {
		e.GatewayMS = milliseconds(x.handed.Sub(r.started))
	}
	switch why := x.revoked.Load(); {
	case why != nil:
		e.Reason, e.Message = string(policy.Revoked), why.Message
	case errors.Is(x.failure(), errBudget):
		e.Reason, e.Message = string(policy.ByteBudget), errBudget.Error()
	case errors.Is(x.failure(), errTooLong):
		e.Reason, e.Message = string(policy.BodyTooLarge), errTooLong.Error()
	case x.failure() != nil:
		e.Error = failureOf(x.failure())
	}
	r.g.recordOrLog(e)
}

// bodyError is an answer's body that broke off.
type bodyError struct{ error }

// Unwrap returns what broke it off.
func (b *bodyError) Unwrap() error { return b.error }

// answerBody counts an answer and notes when it breaks off.
type answerBody struct {
	io.ReadCloser
	x    *exchange
	most int64 // bytes; 0 is no bound
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	total := b.x.received.Add(int64(n))
	if e := b.x.r.meters.add(0, int64(n)); e != nil && (err == nil || err == io.EOF) {
		n, err = 0, e
	}
	if b.most > 0 && total > b.most {
		n, err = 0, errTooLong
	}
	if err != nil && err != io.EOF {
		b.x.fail(&bodyError{err})
	}
	return n, err
}

// requestBody counts a request's body.
type requestBody struct {
	io.ReadCloser
	x    *exchange
	most int64 // bytes; 0 is no bound
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	total := b.x.sent.Add(int64(n))
	if e := b.x.r.meters.add(int64(n), 0); e != nil {
		return 0, e
	}
	if b.most > 0 && total > b.most {
		return 0, errTooLong
	}
	return n, err
}

// earlyHints passes informational answers on (RFC 9110, section 15.2) until
// the final one is under way.
type earlyHints struct {
	mu   sync.Mutex
	over bool
}

func (h *earlyHints) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

func (h *earlyHints) trace(r *request) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{Got1xxResponse: func(code int, fields textproto.MIMEHeader) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.over || code == http.StatusContinue || code == http.StatusSwitchingProtocols || r.in.ProtoMajor == 1 && r.in.ProtoMinor == 0 {
			return nil
		}
		out := r.w.Header()
		for k, v := range fields {
			out[k] = v
		}
		r.w.WriteHeader(code)
		for k := range fields {
			delete(out, k)
		}
		return nil
	}}
}
