package audit

import (
	"bytes"
	"strings"
	"time"
)

// Filter chooses events. Its zero value takes all; every field that is set
// must hold.
type Filter struct {
	Since, Until time.Time // Since is included, Until is not

	Sandbox string // name or ID
	Host    string // glob: * is any run of characters, ? is one
	Reason  string // also of a denial that report mode spared, or the class of an error
	Verdict string // allow or deny
	Kind    string
	Conn    string
	Req     string

	Blocked bool // denials only
	Alerts  bool // only what alerts: see Event.Alerting

	// Limit is the number of newest events to take, 0 for all. Follow takes a
	// negative one for no history.
	Limit int
}

// Alerting reports whether e is something to be alerted about: an alert, a
// decision whose rule raises one, or a severity of high or critical.
func (e *Event) Alerting() bool {
	return e.Kind == KindAlert || e.Alert != "" || e.Severity == High || e.Severity == Critical
}

// Match reports whether f takes e. The limit is not its business.
func (f Filter) Match(e *Event) bool {
	switch {
	case !f.Since.IsZero() && e.Time.Before(f.Since),
		!f.Until.IsZero() && !e.Time.Before(f.Until),
		f.Blocked && e.Verdict != "deny",
		f.Alerts && !e.Alerting(),
		f.Verdict != "" && e.Verdict != f.Verdict,
		f.Kind != "" && string(e.Kind) != f.Kind,
		f.Conn != "" && e.Conn != f.Conn,
		f.Req != "" && e.Req != f.Req:
		return false
	}
	if f.Reason != "" && e.Reason != f.Reason && (e.Would == nil || e.Would.Reason != f.Reason) && (e.Error == nil || e.Error.Class != f.Reason) {
		return false
	}
	if f.Sandbox != "" && (e.Sandbox == nil || (e.Sandbox.Name != f.Sandbox && e.Sandbox.ID != f.Sandbox)) {
		return false
	}
	return f.Host == "" || f.matchHost(e)
}

// matchHost compares the glob with the name of e or, if it has none, with the
// address that the sandbox dialled.
func (f Filter) matchHost(e *Event) bool {
	host := e.Host
	if host == "" && e.DNS != nil {
		host = e.DNS.QName
	}
	if host == "" && e.Dst != nil {
		host = e.Dst.IP
	}
	return glob(strings.ToLower(f.Host), strings.ToLower(host))
}

// glob matches s with pattern in time linear in both, bar the retries of the
// last star.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// sieve is a Filter made ready to throw out most lines before they are
// decoded. What it lets through still has to be matched. A line that is no
// record is let through: nobody knows what it was, and the answer lacks it.
type sieve struct {
	f        Filter
	literals [][]byte // every one must be in the line
	host     []byte   // the member host, if the line has one; nil is any
	clean    bool     // it is known that all lines are records
}

// takesAll reports whether no line is thrown out.
func (s *sieve) takesAll() bool { return len(s.literals) == 0 && s.host == nil }

func newSieve(f Filter) *sieve {
	s := &sieve{f: f}
	add := func(key, value string) {
		if value != "" && len(value) < capWord/6 {
			s.literals = append(s.literals, appendString([]byte(key), value, capWord))
		}
	}
	add(`"kind":`, f.Kind)
	add(`"verdict":`, f.Verdict)
	add(``, f.Reason) // of the member reason, or of the class of the error
	add(`"conn":`, f.Conn)
	add(`"req":`, f.Req)
	if f.Blocked {
		add(`"verdict":`, "deny")
	}
	if f.Sandbox != "" && len(f.Sandbox) < capWord/6 {
		s.literals = append(s.literals, appendString(nil, f.Sandbox, capWord))
	}
	if f.Host != "" && !strings.ContainsAny(f.Host, "*?") && len(f.Host) < capWord/6 {
		s.host = appendString([]byte(hostMember[:len(hostMember)-1]), strings.ToLower(f.Host), capWord)
	}
	return s
}

// pass reports whether the line may match or be no record.
func (s *sieve) pass(line []byte) bool { return s.may(line) || !s.clean && !sound(line) }

// may reports whether the line may match.
func (s *sieve) may(line []byte) bool {
	for _, lit := range s.literals {
		if !bytes.Contains(line, lit) {
			return false
		}
	}
	// Host is canonical; without one the name asked counts, in any case. A
	// label may be called host as well.
	return s.host == nil || bytes.Contains(line, s.host) || !bytes.Contains(line, []byte(hostMember)) || bytes.Contains(line, []byte(`"labels":{`))
}

// hostMember is the beginning of the member host of a line.
const hostMember = `"host":"`
