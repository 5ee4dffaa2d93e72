package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sallyport/audit"
	"sallyport/gateway/inject"
	"sallyport/policy"
)

// recordDecision writes the request's one decision, and takes over the ID of
// the record that counts it.
func (r *request) recordDecision(d policy.Decision, us []inject.Use) error {
	e := r.newEvent(r.kind(), audit.PhaseDecision)
	e.decide(d)
	if len(us) == len(e.secrets) {
		e.Secrets = e.secrets[:0]
	}
	e.uses(us)
	e.refusedAddress(r.refused)
	err := r.g.record(&e.event)
	r.id = e.Req
	if d.Verdict == policy.Allow {
		r.allowed = e
	}
	return err
}

// endEvent begins the event of the request's end, in the memory of that of its
// decision: nobody has that any more, as what allows is not folded.
func (r *request) endEvent() *requestEvent {
	e := r.allowed
	if e == nil {
		return r.newEvent(r.kind(), audit.PhaseEnd)
	}
	r.allowed = nil
	*e = requestEvent{}
	r.begin(e, r.kind(), audit.PhaseEnd)
	return e
}

// refuse records a denial and answers with it, not faster than the sandbox may
// be refused.
func (r *request) refuse(d policy.Decision) {
	switch d.Reason {
	case policy.ResolveFailed, policy.SecretUnavailable, policy.ProtocolError: // of a wait that may have been cut short
		if why := r.c.cutShort(); why != nil {
			why.Rule = d.Rule
			d = *why
		}
	}
	d = r.graver(d)
	d.Verdict, d.Inject = policy.Deny, nil
	if err := r.recordDecision(d, r.unsent()); err != nil {
		d = policy.Decision{Reason: policy.AuditUnavailable, Message: "the audit log cannot be written"}
	}
	r.c.refusals().wait(r.in.Context())
	r.reply(d)
}

func (r *request) kind() audit.Kind {
	if r.websocket {
		return audit.KindWS
	}
	return audit.KindHTTP
}

// requestEvent is an event about a request with what it may point to.
type requestEvent struct {
	event
	http     audit.HTTP
	bytes    audit.Bytes
	upstream audit.Upstream
	secrets  [1]audit.SecretUse
}

// event begins an event about the request.
func (r *request) event(kind audit.Kind, phase audit.Phase) *event {
	return &r.newEvent(kind, phase).event
}

func (r *request) newEvent(kind audit.Kind, phase audit.Phase) *requestEvent {
	e := &requestEvent{}
	r.begin(e, kind, phase)
	return e
}

// begin fills e, which is zero, with what is known of the request.
func (r *request) begin(e *requestEvent, kind audit.Kind, phase audit.Phase) {
	r.c.begin(&e.event, kind, phase)
	e.of, e.Event.Policy = r.snap, policyOf(r.snap)
	e.Req = r.id
	if r.authority != "" && r.authority != r.c.host {
		e.Authority = r.authority
	}
	e.HTTP = &e.http
	e.http = audit.HTTP{Version: version(r.in), Method: r.method, Scheme: "http", Path: r.path,
		QueryKeys: queryKeys(r.query), UserAgent: r.in.Header.Get("User-Agent")}
	if r.c.scheme == policy.HTTPS {
		e.HTTP.Scheme = "https"
	}
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
