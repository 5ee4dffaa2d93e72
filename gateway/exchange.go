package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// exchange is one admitted request on its way, and its answer.
type exchange struct {
	r       *request
	control http.ResponseController // of the sandbox's side
	cancel  context.CancelCauseFunc // set before anybody else knows of the exchange
	unwatch func() bool             // of HTTP/2, of watchClient
	answer  answerWriter
	body    answerBody
	looked  lookedInto
	live    liveMasker
	entry   liveEntry

	info     upstream.Info
	handed   time.Time // when the request was handed upstream; zero before
	status   int
	length   int64 // of the answer's body as announced; -1 when it is not
	sent     atomic.Int64
	received atomic.Int64
	failed   atomic.Pointer[error] // of the round trip or of a body
	unread   atomic.Pointer[error] // of reading the request's body
	asking   atomic.Bool           // the request's body has not ended
	broken   atomic.Bool           // the answer's body broke off
	gathers  bool                  // reads of the answer's body may wait for more than has arrived; of the handler
	unsent   bool                  // the sandbox's side failed, which the server may not know; of the handler
	early    earlyHints
	attempt  upstream.Attempt
	peer     atomic.Pointer[netip.AddrPort] // that it goes to; nil before it has a connection
	masked   maskedUses
	edged    atomic.Bool // a range of the answer cut a value
	revoked  atomic.Pointer[policy.Decision]
	hijacked atomic.Pointer[hijackedConn]

	progress atomic.Int64 // when a byte last passed, in Unix nanoseconds
	writing  atomic.Int64 // since when a write to the sandbox waits, likewise; 0 is none

	mu       sync.Mutex  // held while a cut touches the sandbox's side
	over     bool        // its handler returns: the sandbox's side is no longer the exchange's
	last     *time.Timer // to sever
	wait     *time.Timer // for a client that has closed its side
	upgraded io.Closer   // the upstream's side after 101
}

// exchange begins the request's exchange.
func (r *request) exchange() *exchange {
	x := &r.admitted
	x.r, x.control = r, *http.NewResponseController(r.w)
	x.moved()
	return x
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// Why an exchange is ended from outside.
var (
	errRevokedExchange = errors.New("the policy no longer allows the request")
	errStalled         = errors.New("no byte passed for too long")
)

// Why an exchange ends, besides what package upstream tells.
var (
	errUnaskedUpgrade = errors.New("the upstream switched protocols without being asked")
	errBrokenBody     = errors.New("the framing of the request's body is broken")
	errNoStatus       = errors.New("the upstream answered with a status that does not exist")
	errClientGone     = errors.New("the client closed the connection")
)

// lastWords is how long a cut exchange has to tell the sandbox why.
const lastWords = time.Second

// past is a deadline that is over.
func past() time.Time { return time.Unix(1, 0) }

// context returns the context in which the request goes upstream. It ends by
// cancel alone: not with the sandbox's side, which may be half-closed.
func (x *exchange) context() context.Context {
	x.attempt = upstream.Attempt{Route: x.r.route, Info: &x.info, Interim: x.interim, Watch: x}
	ctx, cancel := context.WithCancelCause((*exchangeContext)(x))
	x.cancel = cancel
	return ctx
}

// exchangeContext is a context that holds an exchange, and its attempt.
type exchangeContext exchange

// Deadline implements context.Context: there is none.
func (c *exchangeContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context: it does not end.
func (c *exchangeContext) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (c *exchangeContext) Err() error { return nil }

// Value implements context.Context.
func (c *exchangeContext) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return (*exchange)(c)
	}
	return c.attempt.Value(key)
}

// moved notes that something passed.
func (x *exchange) moved() { x.progress.Store(x.r.g.Now().UnixNano()) }

// waits notes that a write to the sandbox begins.
func (x *exchange) waits() { x.writing.Store(x.r.g.Now().UnixNano()) }

// written notes that it has ended.
func (x *exchange) written() {
	x.progress.Store(x.writing.Swap(0))
}

// overdue ends an exchange whose sandbox does not read, or in which nothing
// passes at all.
func (x *exchange) overdue(now time.Time) {
	since := func(nanos int64) time.Duration { return now.Sub(time.Unix(0, nanos)) }
	w := x.writing.Load()
	if w != 0 && since(w) > x.r.g.Limits.StallTimeout || since(x.progress.Load()) > x.r.g.Limits.RelayIdle {
		x.fail(errStalled)
		x.cut(errStalled)
	}
}

// Reached implements upstream.Watcher. A reload that came before did not see the
// address.
func (x *exchange) Reached(peer *netip.AddrPort) bool {
	x.peer.Store(peer)
	if why := x.r.c.takenBack(&x.entry, x.r.snap); why != nil {
		x.revoke(*why)
	}
	return x.revoked.Load() == nil
}

// revoke cuts the exchange because policy took its allow back.
func (x *exchange) revoke(why policy.Decision) {
	if x.revoked.CompareAndSwap(nil, &why) {
		x.cut(errRevokedExchange)
	}
}

// cut ends the exchange whatever it waits for: at once towards the upstream,
// and towards the sandbox after a moment in which it may be told.
func (x *exchange) cut(why error) {
	x.mu.Lock() // before cancel, or the handler ends the exchange first, and leaves a body that is waited for
	defer x.mu.Unlock()
	x.cancel(why)
	if x.over {
		return
	}
	if x.upgraded != nil {
		_ = x.upgraded.Close() // whoever copies sees it
	}
	if x.hijacked.Load() != nil {
		x.sever()
		return
	}
	if g := x.r.c.guard; g != nil {
		g.Halt()
	} else {
		_ = x.control.SetReadDeadline(past()) // of the body; what fails has ended already
	}
	if x.last == nil {
		x.last = time.AfterFunc(lastWords, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.sever()
		})
	}
}

// halfClosedWait is how long nothing may pass on an exchange whose client has
// closed its side. It may wait for the answer or be gone: only what is sent
// to it would tell.
const halfClosedWait = 10 * time.Second

// left is called when the client has closed its side or broken off.
func (x *exchange) left() {
	if g := x.r.c.guard; g == nil || !g.HalfClosed() {
		x.cancel(errClientGone)
		return
	}
	x.mu.Lock()
	if !x.over {
		x.wait = time.AfterFunc(halfClosedWait, x.linger)
	}
	x.mu.Unlock()
	if x.r.c.tls.Load() != nil {
		x.awaitEnd()
	}
}

// awaitEnd is called when a client has closed its side within TLS. One that
// closes the connection of TCP below as well waits for nothing.
func (x *exchange) awaitEnd() {
	b := make([]byte, 512)
	for {
		if _, err := x.r.c.client.Conn.Read(b); err != nil {
			x.cancel(errClientGone)
			return
		}
	}
}

// linger ends a half-closed exchange once nothing has passed for a while.
func (x *exchange) linger() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	if idle := x.r.g.Now().Sub(time.Unix(0, x.progress.Load())); idle < halfClosedWait {
		x.wait.Reset(halfClosedWait - idle)
		return
	}
	x.cancel(errClientGone)
}

// sever breaks the sandbox's side off: the connection of HTTP/1.1, the
// stream of HTTP/2. Its caller holds mu.
func (x *exchange) sever() {
	switch {
	case x.over:
	case x.r.in.ProtoMajor == 2:
		_ = x.control.SetReadDeadline(past()) // likewise
		_ = x.control.SetWriteDeadline(past())
	default:
		if why := x.revoked.Load(); why != nil {
			x.r.c.client.revoke(*why)
			return
		}
		x.r.c.client.reset()
	}
}

// upgradeTo notes the upstream's side of a connection that was taken over.
func (x *exchange) upgradeTo(c io.Closer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.upgraded = c
	if x.revoked.Load() != nil {
		_ = c.Close()
	}
}

// hijack notes the sandbox's side of a connection that was taken over.
func (x *exchange) hijack(c *hijackedConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hijacked.Store(c)
	if x.revoked.Load() != nil {
		x.sever()
	}
}

// roundTrip sends out and returns the answer.
func (x *exchange) roundTrip(out *http.Request) (*http.Response, error) {
	if x.revoked.Load() != nil { // before it had begun
		_ = out.Body.Close() // nobody reads it
		return nil, errRevokedExchange
	}
	x.handed = x.r.g.Now()
	resp, err := x.r.g.Upstream.Transport(x.r.c.sandbox.ID).RoundTrip(out)
	x.early.stop() // none comes now, or one that comes late would meet the answer
	if err != nil {
		x.fail(err)
		return nil, err
	}
	if x.r.brokenBody() != nil { // what was answered to a part of it
		_ = resp.Body.Close() // it is not delivered
		x.fail(errBrokenBody)
		return nil, errBrokenBody
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_, most := x.r.meters.maxima()
		if most > 0 && resp.ContentLength > most {
			_ = resp.Body.Close() // it is not read
			x.fail(errAnswerTooLong)
			return nil, errAnswerTooLong
		}
		x.body = answerBody{ReadCloser: resp.Body, x: x, most: most}
		resp.Body = &x.body
	}
	if err := x.mask(resp); err != nil {
		_ = resp.Body.Close() // it is not delivered
		x.fail(err)
		return nil, err
	}
	return resp, nil
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
// for a whole one. Behind one that could not be sent nothing else is served. A
// whole answer is sent.
func (x *exchange) finish() {
	if h := x.hijacked.Load(); h != nil {
		_ = h.Close()
		return
	}
	if x.unsent || x.broken.Load() && x.length != 0 {
		panic(http.ErrAbortHandler)
	}
	if _, said := x.r.w.Header()["Content-Length"]; said && x.r.in.ProtoMajor == 1 && x.answer.written == x.length {
		x.answer.Flush() // the server would do so itself, but only when the end is recorded
	}
}

// end writes the end event.
func (x *exchange) end() {
	r := x.r
	x.mu.Lock()
	x.over = true
	for _, t := range []*time.Timer{x.last, x.wait} {
		if t != nil {
			t.Stop()
		}
	}
	x.mu.Unlock()
	x.early.stop()
	e := r.endEvent()
	e.HTTP.Status = x.status
	e.HTTP.ReqBytes, e.HTTP.RespBytes = x.sent.Load(), x.received.Load()
	e.Bytes = &e.bytes
	e.bytes = audit.Bytes{Sent: x.sent.Load(), Received: x.received.Load()}
	if r.c.fill(&e.upstream, x.info) {
		e.Upstream = &e.upstream
	}
	e.uses(x.masked.all())
	if r.plan != nil {
		e.uses(r.plan.Later())
	}
	whole := r.g.Now().Sub(r.started)
	e.DurationMS = milliseconds(whole)
	if !x.handed.IsZero() {
		e.GatewayMS = milliseconds(x.handed.Sub(r.started))
	}
	if d := x.taken(x.failure()); d != nil {
		e.Reason, e.Message = string(d.Reason), d.Message
	} else if err := x.failure(); err != nil {
		e.Error = failureOf(err)
	}
	r.g.recordOrLog(&e.event)
}
