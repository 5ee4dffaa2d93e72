package audit

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Widths of the columns of a compact line, in characters. What is longer
// pushes the rest to the right; it is never cut, but for the caps of Escape.
const (
	wVerdict = 5
	wSandbox = 4
	wKind    = 4
	wMethod  = 4
	wTarget  = 31
	wReason  = 17
)

// Escape sequences of the colours, for a terminal only.
const (
	colourDeny  = "\x1b[31m"
	colourAllow = "\x1b[32m"
	colourWould = "\x1b[33m"
	colourDim   = "\x1b[2m"
	colourOff   = "\x1b[0m"
)

// Compact writes e as one line for people:
//
//	13:20:01.412 DENY  ci   dns  TXT  c2VjcmV0.exfil.example          host_not_allowed
//
// The columns are time of day (in the location of e.Time), verdict (! for what
// alerts), sandbox, kind, method or type, target, reason, and then what there
// is of rule, secrets (+NAME was injected), folded repeats ([xN]) and text.
// Everything that did not come from the gateway itself is escaped.
func Compact(w io.Writer, e *Event, color bool) {
	var b strings.Builder
	b.WriteString(e.Time.Format("15:04:05.000"))
	b.WriteByte(' ')
	verdict := verdictOf(e)
	if color {
		b.WriteString(verdictColour(e))
	}
	column(&b, verdict, wVerdict)
	if color {
		b.WriteString(colourOff)
	}
	name := "-"
	if e.Sandbox != nil && e.Sandbox.Name != "" {
		name = token(e.Sandbox.Name, 64)
	}
	b.WriteByte(' ')
	column(&b, name, wSandbox)
	b.WriteByte(' ')
	column(&b, token(string(e.Kind), 16), wKind)
	b.WriteByte(' ')
	column(&b, method(e), wMethod)
	b.WriteByte(' ')
	column(&b, target(e), wTarget)
	b.WriteByte(' ')
	rest := details(e)
	reason := reasonOf(e)
	if rest != "" {
		column(&b, reason, wReason)
		b.WriteByte(' ')
		reason = rest
	}
	b.WriteString(reason)
	// A writer that fails is the caller's to notice.
	_, _ = io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n")
}

// column writes s and spaces up to width.
func column(b *strings.Builder, s string, width int) {
	b.WriteString(s)
	for n := utf8.RuneCountInString(s); n < width; n++ {
		b.WriteByte(' ')
	}
}

// token is Escape for a word of a column, which may have no space in it.
func token(s string, limit int) string {
	return strings.ReplaceAll(Escape(s, limit), " ", `\x20`)
}

// verdictOf is the second column.
func verdictOf(e *Event) string {
	word := "EVENT"
	switch {
	case e.Phase == PhaseEnd:
		word = "END"
	case e.Kind == KindAlert:
		word = "ALERT"
	case e.Would != nil:
		word = "WOULD"
	case e.Verdict == "allow":
		word = "ALLOW"
	case e.Verdict == "deny":
		word = "DENY"
	}
	if e.Alerting() {
		word += "!"
	}
	return word
}

func verdictColour(e *Event) string {
	switch {
	case e.Verdict == "deny" || e.Alerting():
		return colourDeny
	case e.Would != nil:
		return colourWould
	case e.Phase == PhaseDecision:
		return colourAllow
	}
	return colourDim
}

// reasonOf is the reason, or what stands in for it.
func reasonOf(e *Event) string {
	switch {
	case e.Would != nil && e.Would.Reason != "":
		return token(e.Would.Reason, 64)
	case e.Reason != "":
		return token(e.Reason, 64)
	case e.Kind == KindPolicy && e.Error != nil:
		return "not_loaded"
	case e.Error != nil:
		return token(e.Error.Class, 64)
	case e.Note != nil:
		return token(e.Note.Action, 64)
	case e.Alert != "":
		return token(e.Alert, 64)
	}
	return "-"
}

// method is what was asked for: HTTP method, DNS type, protocol.
func method(e *Event) string {
	s := ""
	switch {
	case e.HTTP != nil:
		s = e.HTTP.Method
	case e.DNS != nil:
		s = e.DNS.QType
	case e.TLS != nil && e.Proto == "":
		s = e.TLS.Mode
	default:
		s = e.Proto
	}
	if s == "" {
		return "-"
	}
	return token(s, 32)
}

// target is where to: host and path, host and port, an address, a command.
func target(e *Event) string {
	host := e.Host
	if host == "" && e.DNS != nil {
		host = e.DNS.QName
	}
	if host == "" && e.Dst != nil {
		host = e.Dst.IP
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := e.Port
	if port == 0 && e.Dst != nil {
		port = e.Dst.Port
	}
	switch {
	case e.HTTP != nil:
		return token(host+portSuffix(port, e.HTTP.Scheme)+withoutQuery(e.HTTP.Path), 256)
	case e.DNS != nil:
		return token(host, 256)
	case e.Run != nil && len(e.Run.Argv) > 0:
		return Escape(strings.Join(e.Run.Argv, " "), 128)
	case host == "":
		return "-"
	case port != 0:
		return token(host+":"+strconv.Itoa(int(port)), 256)
	}
	return token(host, 256)
}

// portSuffix is the port unless it is the scheme's own.
func portSuffix(port uint16, scheme string) string {
	if port == 0 || (port == 443 && scheme != "http") || (port == 80 && scheme == "http") {
		return ""
	}
	return ":" + strconv.Itoa(int(port))
}
