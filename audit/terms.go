package audit

import (
	"crypto/sha256"
	"strings"
)

// Dimensions of the index: the first byte of a term.
const (
	dimSandbox       = 's' // name or ID
	dimVerdict       = 'v'
	dimReason        = 'r' // also the spared one of report mode
	dimHost          = 'h'
	dimKind          = 'k'
	dimSandboxReason = 'p' // sandbox, newline, reason: what is asked for together most
	dimAlert         = 'a' // the alert's name or the severity of what alerts
)

// maxTerm is the longest value that stands in the index by itself; of a longer
// one it has the hash.
const maxTerm = 200

// term is the key of a value in a dimension. Terms of the index end in a zero
// byte, which no value has.
func term(dim byte, value string) string {
	if len(value) > maxTerm || strings.IndexByte(value, 0) >= 0 {
		sum := sha256.Sum256([]byte(value))
		value = "#" + string(sum[:])
		value = strings.ReplaceAll(value, "\x00", "\x01")
	}
	return string(dim) + value + "\x00"
}

// lineFacts are what of a line the index knows.
type lineFacts struct {
	kind, verdict, host string
	sandboxes, reasons  []string
	alerts              bool
}

// read takes the facts from a line.
func (f *lineFacts) read(line []byte) {
	members(line, func(name, v []byte) {
		switch string(name) {
		case "kind":
			f.kind = text(v)
			f.alerts = f.alerts || f.kind == string(KindAlert)
		case "verdict":
			f.verdict = text(v)
		case "reason":
			f.reasons = append(f.reasons, text(v))
		case "would":
			f.reasons = append(f.reasons, only(v, "reason")...)
		case "sandbox":
			f.sandboxes = only(v, "name", "id")
		case "host":
			f.host = strings.ToLower(text(v))
		case "dns":
			if name := only(v, "qname"); f.host == "" && len(name) > 0 {
				f.host = strings.ToLower(name[0])
			}
		case "alert":
			f.alerts = true
		case "severity":
			s := Severity(text(v))
			f.alerts = f.alerts || s == High || s == Critical
		}
	})
}

// only returns the texts of the members of object with one of the names.
func only(object []byte, names ...string) (list []string) {
	members(object, func(name, v []byte) {
		for _, n := range names {
			if n == string(name) {
				list = append(list, text(v))
			}
		}
	})
	return list
}

// lineTerms calls add for each term of a line.
func lineTerms(line []byte, add func(term string)) {
	var f lineFacts
	f.read(line)
	value := func(dim byte, s string) {
		if s != "" {
			add(term(dim, s))
		}
	}
	value(dimKind, f.kind)
	value(dimVerdict, f.verdict)
	value(dimHost, f.host)
	if f.alerts {
		add(term(dimAlert, ""))
	}
	for _, r := range f.reasons {
		value(dimReason, r)
	}
	for _, s := range f.sandboxes {
		value(dimSandbox, s)
		for _, r := range f.reasons {
			if s != "" && r != "" {
				add(term(dimSandboxReason, s+"\n"+r))
			}
		}
	}
}

// terms are those that every event has that f takes. None means that the index
// is of no use.
func (f Filter) terms() []string {
	var list []string
	add := func(dim byte, value string) {
		if value != "" {
			list = append(list, term(dim, value))
		}
	}
	if f.Sandbox != "" && f.Reason != "" {
		add(dimSandboxReason, f.Sandbox+"\n"+f.Reason)
	} else {
		add(dimSandbox, f.Sandbox)
		add(dimReason, f.Reason)
	}
	add(dimVerdict, f.Verdict)
	add(dimKind, f.Kind)
	if f.Blocked {
		add(dimVerdict, "deny")
	}
	if f.Host != "" && !strings.ContainsAny(f.Host, "*?") {
		if host := strings.ToLower(f.Host); !strings.ContainsAny(host, ":") && strings.Trim(host, "0123456789.") != "" {
			add(dimHost, host)
		}
	}
	if f.Alerts {
		list = append(list, term(dimAlert, ""))
	}
	return list
}
