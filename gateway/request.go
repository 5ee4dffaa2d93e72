package gateway

import (
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"sallyport/audit"
	"sallyport/gateway/http1"
	"sallyport/gateway/inject"
	"sallyport/gateway/upstream"
	"sallyport/policy"
	"sallyport/secrets"
)

// request is one HTTP request and what is known of it. Each step of
// serveHTTP fills in what the next one needs.
type request struct {
	g       *Gateway
	c       *conn
	snap    *Snapshot
	id      string
	started time.Time
	w       http.ResponseWriter
	in      *http.Request // as it was read; it is not written to
	head    http1.Head    // of HTTP/1.1

	method    string
	path      string // as sent, without the query
	query     string
	authority string // as sent
	websocket bool
	header    http.Header   // as it is to leave, without the secrets; it is not written to
	body      *policy.Body  // nil: not looked at
	taken     []byte        // of the body, to look at it
	hold      hold          // for what is taken, until the request has ended
	unpacks   hold          // for what is decompressed, likewise
	counted   *sandboxState // that counts it among those that run
	last      bool          // its connection ends with it

	decision policy.Decision
	charged  meters // those from which it was taken before its body was looked at
	meters   meters
	plan     *inject.Plan
	patterns []inject.Use // keys of known formats
	route    upstream.Route
	refused  upstream.Route // with the address for which the host was refused
	values   map[string]secrets.Value
	withheld []inject.Use  // of a refusal
	token    string        // secret whose token the gateway answers with; "": none
	allowed  *requestEvent // the decision's, once it is recorded; nil: it was none to allow
	x        *exchange
	out      *http.Request // as it is to leave

	// What the fields above may point to, so that one request is one piece of
	// memory.
	admitted exchange
	url      url.URL // of out
	waits    waiting
}

// serveHTTP takes one request from its head to its end. A step that denies
// ends it; nothing leaves before the decision is recorded.
func (g *Gateway) serveHTTP(w http.ResponseWriter, in *http.Request) {
	c := connOf(in.Context())
	if c == nil || !g.handling.enter() {
		panic(http.ErrAbortHandler) // no connection without a decision reaches the server
	}
	defer g.handling.leave()
	if c.streams != nil && !c.streams.Taken(in.Context(), in.Method, in.Host, in.RequestURI) {
		panic(http.ErrAbortHandler) // it is on record as refused
	}
	g.idle.note()
	if in.ProtoMajor == 1 {
		// Without it the server takes the body in before it answers, which a
		// client that waits for the answer never lets end.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 always has it
	}
	body := in.Body // before it is wrapped
	g.serveRequest(c, w, in)
	if in.ProtoMajor == 1 && body != http.NoBody {
		endBody(w, body)
	}
}

// serveRequest is serveHTTP on a connection that is known.
func (g *Gateway) serveRequest(c *conn, w http.ResponseWriter, in *http.Request) {
	r := &request{g: g, c: c, snap: g.snap.Load(), id: audit.NewID(), started: g.Now(), w: w, in: in,
		method: in.Method, decision: policy.Decision{Verdict: policy.Allow, Reason: policy.GatewayName}}
	defer r.hold.end()
	defer r.unpacks.end()
	defer r.countOut()
	for _, step := range []func(*request) *policy.Decision{
		(*request).readHead,
		(*request).checkConn,
		(*request).countIn,
		(*request).checkMethod,
		(*request).checkAuthority,
		(*request).checkUpgrade,
		(*request).settleHeader,
		(*request).askPolicy,
		(*request).checkLimits,
		(*request).checkExfiltration,
		(*request).planSecrets,
		(*request).findToken,
		(*request).findRoute,
		(*request).fetchSecrets,
		(*request).prepare,
		(*request).checkSandbox,
	} {
		if d := step(r); d != nil {
			r.waits.end()
			r.refuse(*d)
			return
		}
	}
	r.waits.end()
	if err := r.recordDecision(r.decision, r.uses()); err != nil {
		r.reply(policy.Decision{Reason: policy.AuditUnavailable, Message: "the audit log cannot be written"})
		return
	}
	if c.internal {
		r.serveInternal()
		return
	}
	r.recordPatterns()
	if r.token != "" {
		r.serveToken()
		return
	}
	r.forward()
}

// checkSandbox refuses what the sandbox has not lived to see decided.
func (r *request) checkSandbox() *policy.Decision { return r.c.forgotten() }

// endBody sends the answer and takes in what is left of a small body. The
// server would do so itself, but after it has stopped to watch the connection:
// the end of the body starts that again, and the next request then panics.
func endBody(w http.ResponseWriter, body io.Closer) {
	_ = http.NewResponseController(w).Flush() // the client may have gone
	_ = body.Close()                          // likewise
}

// still says why a request must not go on under a new decision: because of
// the addresses of which it may have dialled one, of the one that it goes to, or
// of the secrets that it sends.
func (x *exchange) still(d policy.Decision) *policy.Decision {
	r := x.r
	if why := r.g.stillLeads(r.c.target(d), r.route.Addrs); why != nil {
		return why
	}
	if p := x.peer.Load(); p != nil && !slices.ContainsFunc(r.route.Addrs, func(a netip.Addr) bool { return a.Unmap() == p.Addr() }) {
		if why := r.g.stillLeads(r.c.target(d), []netip.Addr{p.Addr()}); why != nil {
			return why
		}
	}
	if r.plan == nil {
		return nil
	}
	for _, name := range r.plan.Secrets() {
		if !slices.Contains(d.Inject, name) {
			return deny(policy.Revoked, "the policy no longer lets secret "+name+" be sent")
		}
	}
	return nil
}

// forward sends the request on and its answer back, and records the end.
func (r *request) forward() {
	x := r.x
	defer x.cancel(nil)
	x.watchClient()
	defer x.unwatchClient()
	entry := &x.entry
	*entry = liveEntry{sandboxID: r.c.sandbox.ID, request: r.policyRequest(), of: x}
	r.g.live.add(entry)
	defer r.g.live.remove(entry)
	defer x.end()
	if why := r.c.takenBack(entry, r.snap); why != nil {
		x.revoke(*why)
	}
	r.g.engine.run(x, r.out)
}
