package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"sallyport/audit"
	"sallyport/gateway/inject"
	"sallyport/policy"
)

// checkExfiltration refuses a request that carries a real value, and, where
// the sandbox's policy says so, one that carries a key of a known format.
func (r *request) checkExfiltration() *policy.Decision {
	if r.c.internal {
		return nil
	}
	if refused := r.snap.held().Request(r.in); refused != nil {
		r.refusedUses(refused.Uses)
		return deny(refused.Reason, refused.Message)
	}
	p := r.snap.Policy.Sandbox(r.c.sandbox.Policy)
	if p == nil || p.Credentials == policy.TripwireOff || r.snap.Inject == nil {
		return nil
	}
	r.patterns = r.snap.Inject.Credentials(r.injectInput())
	if len(r.patterns) > 0 && p.Credentials == policy.TripwireBlock {
		r.refusedUses(r.patterns)
		return deny(policy.CredentialPattern, "the request carries what looks like a key")
	}
	return nil
}

// graver returns the denial of a request that is denied anyway: if it carries
// a real value, that is what is to be told.
func (r *request) graver(d policy.Decision) policy.Decision {
	if r.c.internal || d.Reason == policy.SecretExfiltration {
		return d
	}
	refused := r.snap.held().Request(r.in)
	if refused == nil {
		return d
	}
	r.refusedUses(refused.Uses)
	return policy.Decision{Reason: refused.Reason, Message: refused.Message, Rule: d.Rule}
}

// injectInput is the request as package inject reads it.
func (r *request) injectInput() inject.Input {
	return inject.Input{Sandbox: r.c.sandbox.Policy, Request: r.in, Host: r.c.host, Scheme: r.c.scheme,
		Intercepted: r.c.tls.Load() != nil, Decision: r.decision}
}

// recordPatterns records keys of known formats that were let through. They
// are no decision of their own: the request is.
func (r *request) recordPatterns() {
	if len(r.patterns) == 0 {
		return
	}
	d := policy.Decision{Reason: policy.CredentialPattern, Message: "the request carries what looks like a key"}
	e := r.event(audit.KindSecret, audit.PhaseEvent)
	e.Reason, e.Message, e.Severity = string(d.Reason), d.Message, severity(d)
	e.uses(r.patterns)
	r.g.recordOrLog(e)
}

// maskEarly is mask of an informational answer.
func (x *exchange) maskEarly(fields http.Header) {
	if m := x.masker(); m != nil {
		m.Header(fields, func(name, header string) { x.masked.add(name, "early header "+header) })
	}
}

// mask covers real values in an answer before the sandbox's side sees it.
func (x *exchange) mask(resp *http.Response) error {
	m := x.masker()
	if m == nil {
		return nil
	}
	if resp.StatusCode == http.StatusPartialContent && x.r.rangesSpent() {
		return errors.Join(errUnmaskable, errRangesSpent)
	}
	if err := m.Response(resp, x.covered); err != nil {
		return unmaskable(err)
	}
	if stream, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &maskedStream{ReadWriteCloser: stream, r: m.Messages(stream, func(name string) { x.masked.add(name, "message") })}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		x.gathers = inject.Gathers(resp)
		x.looked = lookedInto{resp.Body, x}
		resp.Body = &x.looked
	}
	return nil
}

// edgesMost is how many answers to requests for ranges may cut a value, in one
// life of a sandbox. What is covered of such an answer tells a guess of a piece
// of the value from others: behind them, answers come whole.
const edgesMost = 3

// errRangesSpent is a partial answer that was not asked for.
var errRangesSpent = errors.New("the answer is partial, and no range was asked for: too many before cut a secret")

// rangesSpent says whether edgesMost has been reached.
func (r *request) rangesSpent() bool { return r.c.state.edges.Load() >= edgesMost }

// covered notes that a value was covered in the answer.
func (x *exchange) covered(name, place string) {
	x.masked.add(name, place)
	if place == inject.EdgeOfRange && !x.edged.Swap(true) {
		x.r.c.state.edges.Add(1)
	}
}

// errUnmaskable is an answer whose body cannot be read, and so not masked.
var errUnmaskable = errors.New("secrets in the answer cannot be masked, in its coding or in a part of it: ask for all of it, without compression")

// unmaskable is why an answer is not masked: because of how it is, unless there
// was no room for it.
func unmaskable(err error) error {
	if refused, ok := errors.AsType[*inject.Refusal](err); ok {
		return refused
	}
	return errors.Join(errUnmaskable, err)
}

// lookedInto is a body in which values are covered. Where that fails, as in a
// coding that is not what it says, the answer is broken off.
type lookedInto struct {
	io.ReadCloser
	x *exchange
}

func (b *lookedInto) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.x.broken.Store(true)
		b.x.fail(unmaskable(err)) // unless the body itself has failed before
	}
	return n, err
}

// maskedStream is the upstream's side of an upgraded connection.
type maskedStream struct {
	io.ReadWriteCloser
	r io.Reader
}

func (m *maskedStream) Read(p []byte) (int, error) { return m.r.Read(p) }

// maskedUses are the values that were covered in one answer.
type maskedUses struct {
	mu   sync.Mutex
	uses []inject.Use
}

func (m *maskedUses) add(name, place string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.uses {
		if m.uses[i].Name == name && m.uses[i].Place == place {
			m.uses[i].Count++
			return
		}
	}
	m.uses = append(m.uses, inject.Use{Name: name, Place: place, Action: inject.Masked, Count: 1})
}

func (m *maskedUses) all() []inject.Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]inject.Use(nil), m.uses...)
}

// messages is what a WebSocket's client sends, with secrets in place and
// without real values.
func (x *exchange) messages(src io.Reader) io.Reader {
	src = inject.WatchMessages(src, x.r.heldNow)
	if x.r.plan != nil {
		src = x.r.plan.Messages(src, x.r.values)
	}
	return src
}
