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

// lineTerms calls add for each term of a line.
func lineTerms(line []byte, add func(term string)) {
	var sandboxes, reasons []string
	alerts := ""
	value := func(dim byte, s string) {
		if s != "" {
			add(term(dim, s))
		}
	}
	members(line, func(name, v []byte) {
		switch string(name) {
		case "kind":
			kind := text(v)
			value(dimKind, kind)
			if kind == string(KindAlert) {
				alerts = kind
			}
		case "verdict":
			value(dimVerdict, text(v))
		case "reason":
			reasons = append(reasons, text(v))
		case "would":
			members(v, func(name, v []byte) {
				if string(name) == "reason" {
					reasons = append(reasons, text(v))
				}
			})
		case "sandbox":
			members(v, func(name, v []byte) {
				if n := string(name); n == "name" || n == "id" {
					sandboxes = append(sandboxes, text(v))
				}
			})
		case "host":
			value(dimHost, strings.ToLower(text(v)))
		case "alert":
			alerts = "rule"
		case "severity":
			if s := Severity(text(v)); s == High || s == Critical {
				alerts = string(s)
			}
		}
	})
	if alerts != "" {
		add(term(dimAlert, ""))
	}
	for _, r := range reasons {
		value(dimReason, r)
	}
	for _, s := range sandboxes {
		value(dimSandbox, s)
		for _, r := range reasons {
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
