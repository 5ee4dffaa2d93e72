package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
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

	decision policy.Decision
	meters   meters
	plan     *inject.Plan
	patterns []inject.Use // keys of known formats
	route    upstream.Route
	refused  upstream.Route // with the address for which the host was refused
	values   map[string]secrets.Value
	withheld []inject.Use // of a refusal
	token    string       // secret whose token the gateway answers with; "": none
	x        *exchange
	out      *http.Request // as it is to leave
}

// serveHTTP takes one request from its head to its end. A step that denies
// ends it; nothing leaves before the decision is recorded.
func (g *Gateway) serveHTTP(w http.ResponseWriter, in *http.Request) {
	c := connOf(in.Context())
	if c == nil || !g.handling.enter() {
		panic(http.ErrAbortHandler) // no connection without a decision reaches the server
	}
	defer g.handling.leave()
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
	for _, step := range []func(*request) *policy.Decision{
		(*request).readHead,
		(*request).checkConn,
		(*request).checkMethod,
		(*request).checkAuthority,
		(*request).checkUpgrade,
		(*request).askPolicy,
		(*request).checkLimits,
		(*request).checkExfiltration,
		(*request).planSecrets,
		(*request).findToken,
		(*request).findRoute,
		(*request).fetchSecrets,
		(*request).prepare,
	} {
		if d := step(r); d != nil {
			r.refuse(*d)
			return
		}
	}
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

// endBody sends the answer and takes in what is left of a small body. The
// server would do so itself, but after it has stopped to watch the connection:
// the end of the body starts that again, and the next request then panics.
func endBody(w http.ResponseWriter, body io.Closer) {
	_ = http.NewResponseController(w).Flush() // the client may have gone
	_ = body.Close()                          // likewise
}

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

// checkConn answers a connection that was refused with its refusal.
func (r *request) checkConn() *policy.Decision { return r.c.refusal }

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

// askPolicy decides.
func (r *request) askPolicy() *policy.Decision {
	if r.c.internal {
		return nil
	}
	d := r.snap.decide(r.policyRequest())
	if d.Verdict != policy.Allow {
		return &d
	}
	r.decision = d
	return nil
}

// policyRequest is what policy is asked, now and at each reload.
func (r *request) policyRequest() policy.Request {
	q := r.c.sandbox.Request(policy.StageRequest)
	q.Host, q.Port, q.Scheme = r.c.host, r.c.dst.Port(), r.c.scheme
	q.Method, q.Path, q.Query, q.WebSocket = r.method, r.path, r.query, r.websocket
	q.Header = r.in.Header
	q.Now = r.g.Now()
	return q
}

// checkLimits takes the request from what the sandbox and the rule may use.
func (r *request) checkLimits() *policy.Decision {
	if r.c.internal {
		return nil
	}
	r.meters = r.g.allowances.of(r.snap.Policy, r.c.sandbox, r.decision.Rule)
	for _, w := range r.meters {
		if d := w.request(r.in.ContentLength); d != nil {
			d.Rule = r.decision.Rule
			return d
		}
	}
	return nil
}

// planSecrets finds placeholders and says what is to be done with them.
func (r *request) planSecrets() *policy.Decision {
	if r.c.internal {
		return nil
	}
	if r.snap.Inject == nil || r.snap.Secrets == nil || r.snap.Held == nil {
		return deny(policy.PolicyUnavailable, "the gateway has no secrets in force")
	}
	plan, refusal := r.snap.Inject.Plan(r.injectInput())
	if refusal != nil {
		d := deny(refusal.Reason, refusal.Message)
		d.Rule = r.decision.Rule
		r.refusedUses(refusal.Uses)
		return d
	}
	r.plan = plan
	return nil
}

// working is the context of what is done before the request is forwarded. It
// ends with the client, but not when that has only closed its own side.
func (r *request) working() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.in.Context()))
	stop := context.AfterFunc(r.in.Context(), func() {
		if g := r.c.guard; g == nil || !g.HalfClosed() {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// findRoute resolves the host to addresses that may be dialled.
func (r *request) findRoute() *policy.Decision {
	if r.c.internal || r.token != "" {
		return nil
	}
	ctx, cancel := r.working()
	defer cancel()
	route, d := r.g.route(ctx, r.c.target(r.decision), func() *event { return r.event(audit.KindDNS, audit.PhaseEvent) })
	if d != nil {
		d.Rule, r.refused = r.decision.Rule, route
		return d
	}
	r.route = route
	return nil
}

// fetchSecrets gets the values that the plan needs, before the decision, so
// that the decision is true.
func (r *request) fetchSecrets() *policy.Decision {
	if r.plan == nil || r.plan.Empty() && r.token == "" {
		return nil
	}
	names := r.plan.Secrets()
	if r.token != "" {
		names = []string{r.token} // nothing else leaves
	}
	ctx, cancel := r.working()
	defer cancel()
	r.values = make(map[string]secrets.Value, len(names))
	for _, name := range names {
		v, err := r.snap.Secrets.Get(ctx, name)
		if err != nil {
			r.g.Logger.Warn("secret is not available", "secret", name, "error", err)
			d := deny(policy.SecretUnavailable, "secret "+name+" cannot be had at the moment")
			d.Rule = r.decision.Rule
			r.refusedUses([]inject.Use{{Name: name, Action: "withheld", Count: 1}})
			return d
		}
		r.values[name] = v
	}
	return nil
}

// prepare makes the request as it is to leave, so that one which cannot be
// made is not admitted.
func (r *request) prepare() *policy.Decision {
	if r.c.internal || r.token != "" {
		return nil
	}
	r.x = newExchange(r)
	if d := r.showCertificate(); d != nil {
		return d
	}
	out, err := r.x.outgoing()
	if err == nil {
		r.out = out
		return nil
	}
	var refused *inject.Refusal
	d := deny(policy.SecretUnavailable, "the secret cannot stand where its placeholder does")
	switch unread := r.x.unread.Load(); {
	case errors.As(err, &refused):
		d = deny(refused.Reason, refused.Message)
		r.refusedUses(refused.Uses)
	case errors.Is(err, errTarget):
		d = deny(policy.ProtocolError, errTarget.Error())
	case unread != nil:
		if d = r.x.taken(*unread); d == nil {
			d = deny(policy.ProtocolError, "the request body broke off")
		}
	}
	d.Rule = r.decision.Rule
	return d
}

func (r *request) refusedUses(us []inject.Use) { r.withheld = us }

// uses is what the plan does, for the record.
func (r *request) uses() []inject.Use {
	if r.plan == nil || r.token != "" {
		return nil
	}
	return r.plan.Uses()
}

// recordDecision writes the request's one decision.
func (r *request) recordDecision(d policy.Decision, us []inject.Use) error {
	e := r.event(r.kind(), audit.PhaseDecision)
	e.decide(d)
	e.uses(us)
	e.refusedAddress(r.refused)
	return r.g.record(e)
}

// refuse records a denial and answers with it.
func (r *request) refuse(d policy.Decision) {
	d.Verdict, d.Inject = policy.Deny, nil
	if err := r.recordDecision(d, r.withheld); err != nil {
		d = policy.Decision{Reason: policy.AuditUnavailable, Message: "the audit log cannot be written"}
	}
	r.reply(d)
}

func (r *request) kind() audit.Kind {
	if r.websocket {
		return audit.KindWS
	}
	return audit.KindHTTP
}

// event begins an event about the request.
func (r *request) event(kind audit.Kind, phase audit.Phase) *event {
	e := r.c.event(kind, phase)
	e.Event.Policy = policyOf(r.snap)
	e.Req = r.id
	if r.authority != "" && r.authority != r.c.host {
		e.Authority = r.authority
	}
	e.HTTP = &audit.HTTP{Version: version(r.in), Method: r.method, Scheme: "http", Path: r.path,
		QueryKeys: queryKeys(r.query), UserAgent: r.in.Header.Get("User-Agent")}
	if r.c.scheme == policy.HTTPS {
		e.HTTP.Scheme = "https"
	}
	return e
}

func version(r *http.Request) string {
	switch {
	case r.ProtoMajor == 2:
		return "2"
	case r.ProtoMinor == 0:
		return "1.0"
	}
	return "1.1"
}

// maxQueryKeys bounds what a record says of a query.
const maxQueryKeys = 32

// queryKeys returns the names in a query, without their values.
func queryKeys(query string) []string {
	if query == "" {
		return nil
	}
	var keys []string
	for part := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(part, "=")
		if k, err := url.QueryUnescape(key); err == nil {
			key = k
		}
		if key == "" || slices.Contains(keys, key) {
			continue
		}
		if keys = append(keys, key); len(keys) == maxQueryKeys {
			break
		}
	}
	return keys
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

func deny(reason policy.Reason, message string) *policy.Decision {
	return &policy.Decision{Reason: reason, Message: message}
}

// still says why a request must not go on under a new decision: because of
// the addresses of which it dialled one, or of the secrets that it sends.
func (r *request) still(d policy.Decision) *policy.Decision {
	if why := r.g.stillLeads(r.c.target(d), r.route.Addrs); why != nil {
		return why
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
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.in.Context()))
	defer cancel(nil)
	x.cancel = cancel
	stop := context.AfterFunc(r.in.Context(), x.left)
	defer stop()
	entry := r.g.live.add(&liveEntry{sandboxID: r.c.sandbox.ID, request: r.policyRequest(), still: r.still, cut: x.revoke, overdue: x.overdue})
	defer r.g.live.remove(entry)
	defer x.end()
	if now := r.g.snap.Load(); now != r.snap {
		// A reload came between the decision and the entry.
		if why, cut := entry.noLonger(now.decide(r.policyRequest())); cut {
			x.revoke(why)
		}
	}
	r.g.engine.run(x, r.out.WithContext(x.context(ctx)))
}
