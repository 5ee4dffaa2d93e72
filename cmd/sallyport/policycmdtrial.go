package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"sallyport/gateway"
	"sallyport/gateway/inject"
	"sallyport/policy"
	"sallyport/policy/policyfile"
	"sallyport/secrets"
)

// trial decides the requests of a policy's tests as the gateway would, with
// a clock that stands still and names that resolve to what the test says.
// Nothing leaves the process.
type trial struct {
	bundle   *policyfile.Bundle
	table    *inject.Table
	values   map[string]secrets.Value
	results  []testResult
	coverage coverage
}

// coverage is what the tests have met.
type coverage struct {
	met     map[policy.Pos]bool // rules that matched a request
	reasons map[policy.Reason]bool
}

// testResult is the outcome of one test block.
type testResult struct {
	test     policyfile.Test
	checks   int
	failures []failure
	took     time.Duration
}

// failure is one request that was not decided as its test expects.
type failure struct {
	request policyfile.TestRequest
	want    string
	got     outcome
}

// outcome is how one request is decided.
type outcome struct {
	decision policy.Decision
	rules    []policy.RuleFit
	sent     []string // secrets that are sent with it
}

// standstill is the time of a test that names none. Every expiry of a rule
// that is in force lies behind it, so that no test fails by the passing of
// time; validate tells of rules that expire.
func standstill() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func newTrial(b *policyfile.Bundle) *trial {
	t := &trial{bundle: b, values: map[string]secrets.Value{}, coverage: coverage{met: map[policy.Pos]bool{}, reasons: map[policy.Reason]bool{}}}
	set := b.Set
	t.table = injectTable(set, make([]byte, 32))
	for _, s := range set.Secrets() {
		if v, err := secrets.NewValue([]byte("value-of-" + s.Name)); err == nil {
			t.values[s.Name] = v
		}
	}
	return t
}

func injectTable(set *policy.Set, key []byte) *inject.Table {
	var list []inject.Secret
	for _, s := range set.Secrets() {
		list = append(list, inject.Secret{Name: s.Name, Spec: s, Covers: func(host string) bool { return set.SecretCovers(s.Name, host) }})
	}
	return inject.NewTable(list, set.Sandboxes(), key)
}

// all runs every test.
func (t *trial) all() *trial {
	for _, test := range t.bundle.Tests {
		t.run(test)
	}
	return t
}

func (t *trial) run(test policyfile.Test) {
	began := time.Now()
	r := testResult{test: test}
	now := test.Now
	if now.IsZero() {
		now = standstill()
	}
	check := func(q policyfile.TestRequest, want policyfile.Expectation) {
		r.checks++
		got := t.decide(test.Sandbox, now, q)
		if text := unlike(want, got); text != "" {
			r.failures = append(r.failures, failure{q, text, got})
		}
	}
	for _, q := range test.Allow {
		check(q, policyfile.Expectation{Verdict: policy.Allow})
	}
	for _, q := range test.Deny {
		check(q, policyfile.Expectation{})
	}
	if test.Request != nil {
		check(*test.Request, test.Expect)
	}
	r.took = time.Since(began)
	t.results = append(t.results, r)
}

// unlike says what was expected where something else came; "" where it came.
func unlike(want policyfile.Expectation, got outcome) string {
	d := got.decision
	switch {
	case want.Verdict != d.Verdict, want.Reason != "" && want.Reason != d.Reason:
		if want.Reason != "" {
			return fmt.Sprintf("%s (%s)", want.Verdict, want.Reason)
		}
		return want.Verdict.String()
	case want.HasInject && !slices.Equal(slices.Sorted(slices.Values(want.Inject)), got.sent):
		return fmt.Sprintf("secrets [%s]", strings.Join(want.Inject, ", "))
	}
	return ""
}

// decide decides one request and notes what it met.
func (t *trial) decide(sandbox string, now time.Time, q policyfile.TestRequest) outcome {
	out := t.judge(sandbox, now, q)
	for _, f := range out.rules {
		if f.Matches {
			t.coverage.met[f.Rule.Pos] = true
		}
	}
	if r := out.decision.Rule; r != nil {
		t.coverage.met[r.Pos] = true
	}
	if out.decision.Verdict == policy.Deny {
		t.coverage.reasons[out.decision.Reason] = true
	}
	if w := out.decision.Would; w != nil {
		t.coverage.reasons[w.Reason] = true
	}
	return out
}

func (t *trial) judge(sandbox string, now time.Time, q policyfile.TestRequest) outcome {
	r, u, err := policyRequest(sandbox, q.Method, q.URL)
	if err != nil {
		return outcome{decision: policy.Decision{Reason: policy.BadHostname, Message: err.Error()}}
	}
	r.Now, r.Header = now, http.Header{}
	for name, value := range q.Headers {
		http.Header(r.Header).Set(name, t.shaped(sandbox, value))
	}
	r.Body = t.body(sandbox, r.Header, q.Body)
	if r.Host == gateway.Name {
		return outcome{decision: ofGateway(r.Port)}
	}
	e := t.bundle.Set.Explain(r)
	out := outcome{decision: e.Decision, rules: e.Rules}
	if e.Decision.Verdict == policy.Deny {
		return out
	}
	if d := resolves(r, e.Decision, q.Resolves); d != nil {
		d.Rule = e.Decision.Rule
		out.decision = *d
		return out
	}
	if e.Stage == policy.StageRequest {
		t.plan(&out, r, u, q)
	}
	return out
}

// ofGateway is what is decided of the gateway's own name, whatever a policy says.
func ofGateway(port uint16) policy.Decision {
	if port != 80 && port != 443 {
		return policy.Decision{Reason: policy.PortNotAllowed, Message: gateway.Name + " answers on ports 80 and 443 only"}
	}
	return policy.Decision{Verdict: policy.Allow, Reason: policy.GatewayName}
}

// body reads the body that a test gives as the gateway reads one.
func (t *trial) body(sandbox string, header http.Header, text string) *policy.Body {
	switch {
	case text == "":
		return policy.UnreadBody("is empty")
	case len(header.Values("Content-Encoding")) > 0:
		return policy.UnreadBody("is compressed")
	}
	return policy.ReadBody(header["Content-Type"], []byte(t.shaped(sandbox, text)), policy.AnyBodyForm)
}

// plan asks what becomes of placeholders and credentials in the request.
func (t *trial) plan(out *outcome, r policy.Request, u *url.URL, q policyfile.TestRequest) {
	in := &http.Request{Method: r.Method, URL: u, Host: u.Host, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	for name, value := range q.Headers {
		in.Header.Set(name, t.shaped(r.Sandbox, value))
	}
	in.URL.RawQuery = t.shaped(r.Sandbox, in.URL.RawQuery)
	if q.Body != "" {
		body := t.shaped(r.Sandbox, q.Body)
		in.Body, in.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	plan, refusal := t.table.Plan(inject.Input{Sandbox: r.Sandbox, Request: in, Host: r.Host, Scheme: r.Scheme,
		Intercepted: r.Scheme == policy.HTTPS, Decision: out.decision})
	if refusal == nil {
		refusal = t.send(plan, in)
	}
	if refusal != nil {
		out.decision = policy.Decision{Reason: refusal.Reason, Message: refusal.Message, Rule: out.decision.Rule}
		return
	}
	for _, use := range append(plan.Uses(), plan.Later()...) {
		if use.Action == inject.Injected && !slices.Contains(out.sent, use.Name) {
			out.sent = append(out.sent, use.Name)
		}
	}
	slices.Sort(out.sent)
}

// send carries the plan out with stand-ins for the values and reads the body
// to its end, where a body can still be refused.
func (t *trial) send(plan *inject.Plan, in *http.Request) *inject.Refusal {
	sent := in.Clone(context.Background())
	sent.Body = in.Body
	err := plan.Apply(sent, t.values)
	if err == nil && sent.Body != nil {
		_, err = io.Copy(io.Discard, sent.Body)
	}
	var refusal *inject.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return &inject.Refusal{Reason: policy.UninspectableBody, Message: err.Error()}
	}
	return refusal
}

// shaped puts the sandbox's own placeholder in the place of $NAME for the
// secrets whose placeholder has another form.
func (t *trial) shaped(sandbox, text string) string {
	for _, s := range t.bundle.Set.Secrets() {
		if own := t.table.Placeholder(sandbox, s.Name); own != "$"+s.Name && strings.Contains(text, "$"+s.Name) {
			text = replaceName(text, "$"+s.Name, own)
		}
	}
	return text
}
