package gateway

import (
	"context"
	"net/http"
	"strconv"

	"sallyport/audit"
	"sallyport/policy"
)

// serveInternal serves the gateway's own name, which needs no policy: it has
// only what the sandbox may see anyway.
func (c *conn) serveInternal(ctx context.Context) {
	first, _ := c.client.peek(c.g.Limits.HelloTimeout)
	d := policy.Decision{Verdict: policy.Allow, Reason: policy.GatewayName}
	switch {
	case looksLikeHTTP(first):
		c.scheme = policy.HTTP
		if c.admitConn(d) == nil {
			c.g.front.plain(c)
		}
	case len(first) > 0 && first[0] == recordHandshake:
		c.serveTLS(ctx, first, nil)
	default:
		c.refuse(policy.Decision{Reason: policy.NotHTTP, Message: Name + " speaks HTTP"})
	}
}

// serveInternal answers a request for one of the gateway's files.
func (r *request) serveInternal() {
	var (
		body  []byte
		media string
		ok    bool
	)
	if r.method == http.MethodGet || r.method == http.MethodHead {
		body, media, ok = r.g.Internal(r.c.sandbox, r.path)
	}
	code := http.StatusOK
	if !ok {
		code, body, media = http.StatusNotFound, []byte("sallyport: no such file; there are /ca.pem, /bundle.pem, /nssdb/cert9.db and /env.sh\n"), "text/plain; charset=utf-8"
	}
	h := r.w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	r.w.WriteHeader(code)
	if r.method != http.MethodHead {
		_, _ = r.w.Write(body) // the client may have gone
	}
	e := r.event(r.kind(), audit.PhaseEnd)
	e.HTTP.Status, e.HTTP.RespBytes = code, int64(len(body))
	e.DurationMS = milliseconds(r.g.Now().Sub(r.started))
	r.g.recordOrLog(e)
}
