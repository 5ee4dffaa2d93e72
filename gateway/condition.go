package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"sallyport/policy"
)

// decideByBody decides a request again with its body, where the decision
// without it depends on that. No more of the body is held than the policy
// asks for, and what was read is what is forwarded.
func (r *request) decideByBody(d policy.Decision) policy.Decision {
	r.body = r.readBody(d.NeedsBody, d.BodyForms)
	r.hold.keep(int64(len(r.taken)))
	d = r.snap.decide(r.policyRequest())
	d.Message = r.snap.held().Cover(d.Message) // it may repeat a word of the body
	return d
}

// readBody reads a body of at most so many bytes and keeps what it has read.
func (r *request) readBody(most int64, forms policy.BodyForms) *policy.Body {
	switch codings := r.header["Content-Encoding"]; {
	case r.in.ContentLength == 0 || r.in.Body == nil:
		return policy.UnreadBody("is empty")
	case r.in.ContentLength > most:
		return policy.UnreadBody(fmt.Sprintf("is larger than the %d bytes that it is decided by", most))
	case len(codings) > 1 || len(codings) == 1 && !strings.EqualFold(codings[0], "identity"):
		return policy.UnreadBody("is compressed")
	}
	control := http.NewResponseController(r.w)
	if r.in.ProtoMajor == 2 {
		// Of HTTP/1.1 the guard waits no longer than this.
		_ = control.SetReadDeadline(time.Now().Add(r.g.Limits.StallTimeout)) // HTTP/2 always has it
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	}
	data, err := io.ReadAll(io.LimitReader(r.in.Body, most+1))
	r.taken = data
	switch {
	case err != nil:
		return policy.UnreadBody("broke off")
	case int64(len(data)) > most:
		return policy.UnreadBody(fmt.Sprintf("is larger than the %d bytes that it is decided by", most))
	}
	return policy.ReadBody(r.header["Content-Type"], data, forms)
}

// source is the request's body from its first byte on.
func (r *request) source() io.Reader {
	if len(r.taken) == 0 {
		return r.in.Body
	}
	return io.MultiReader(bytes.NewReader(r.taken), r.in.Body)
}
