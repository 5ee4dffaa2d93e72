// Package policy decides what a sandbox may send and where to.
//
// It is pure: it reads no file, no clock and no network, and it keeps no log.
// A [Document] is what somebody wrote; [Compile] turns it into a [Set]; and
// [Set.Decide] answers one [Request] at one [Stage]. A zero value of any type
// in this package denies.
package policy

import (
	"fmt"
	"net/netip"
	"time"
)

// Stage is how much of an attempt is known when it is decided.
// A later stage may take back an allow, never a denial.
type Stage uint8

const (
	StageName    Stage = iota + 1 // a DNS question: the host only
	StageConn                     // a connection: host, port and, once peeked, scheme
	StageRequest                  // an HTTP request: everything
)

// Verdict is the outcome of a decision. The zero value denies.
type Verdict uint8

const (
	Deny Verdict = iota
	Allow
)

// String returns the word that the audit log uses.
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "deny"
}

// Scheme is what is spoken on a connection. SchemeAny is used before the
// first bytes have been seen; it matches a rule of any scheme.
type Scheme uint8

const (
	SchemeAny Scheme = iota
	HTTPS
	HTTP
	TCP // neither TLS nor HTTP, or not looked at
)

// Relay says what is done with an allowed connection.
type Relay uint8

const (
	RelayNone        Relay = iota // nothing is relayed; the decision denies
	RelayIntercept                // TLS is opened (or plain HTTP read) and each request decided
	RelayPassthrough              // the SNI is checked, TLS is not opened
	RelayTCP                      // bytes are copied from the first on
)

// Request is one attempt, as far as it is known at its stage.
type Request struct {
	Sandbox   string // name of the sandbox in the policy
	Stage     Stage  //
	Host      string // canonical name or IP literal, see CanonicalHost
	Port      uint16 // 0 at StageName
	Scheme    Scheme //
	Method    string // as sent; a WebSocket handshake is GET
	Path      string // as sent: escaped, without the query; "*" for OPTIONS *
	Query     string // as sent, without the question mark
	WebSocket bool   // the request asks for an upgrade to WebSocket

	// Header is the request's header, by canonical name, as net/http has it.
	// It is only read. Without it no rule that asks for a header matches.
	Header map[string][]string
	Body   *Body     // nil: not read; see Decision.NeedsBody
	Now    time.Time // against which rules expire

	// Narrow is what the sandbox was narrowed to for one job, nil if it was
	// not. Decide heeds it at every stage.
	Narrow *Narrowing
}

// Decision is the answer to a Request. The zero value denies.
type Decision struct {
	Verdict Verdict
	Reason  Reason
	Message string   // a sentence for the sandbox: why, never what else is allowed
	Rule    *Rule    // the rule that decided; nil when none did
	Relay   Relay    // RelayNone unless allowed at StageConn or StageRequest
	Inject  []string // secrets that the matching rules list, sorted; shared, do not write
	Would   *Would   // report mode: the denial that enforce mode would have given

	// Addresses are the non-public ranges that every matching rule for this
	// host and port names together; shared, do not write.
	Addresses []netip.Prefix
	// Metadata says that the org file admits cloud metadata addresses.
	Metadata bool

	// NeedsBody is not 0 when the decision may be another one once the body
	// is known: at most so many bytes of it are to be read, and the request
	// decided again with what ReadBody makes of them for BodyForms.
	NeedsBody int64
	BodyForms BodyForms
}

// Would is the denial that a sandbox in report mode was spared.
type Would struct {
	Reason  Reason
	Message string
	Rule    *Rule
}

// Pos is where something was written: a file and a line and column from 1.
type Pos struct {
	File         string
	Line, Column int
}

// String returns file:line, or "" for a zero Pos.
func (p Pos) String() string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}
