package policy

import (
	"slices"
	"strings"
)

// methodSet is a set of HTTP methods. The zero value is empty.
type methodSet struct {
	any  bool // every method but CONNECT and TRACE, which are never forwarded
	list []string
}

// readMethods are those of access = "read".
func readMethods() methodSet {
	return methodSet{list: []string{"GET", "HEAD", "OPTIONS"}}
}

func (m methodSet) has(method string) bool {
	return m.any || slices.Contains(m.list, method)
}

// forwardable reports whether a method may ever be forwarded. Methods are
// case-sensitive tokens, RFC 9110 section 9.1.
func forwardable(method string) bool {
	return isToken(method) && method != "CONNECT" && method != "TRACE"
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// standardMethod reports whether s is a method that has a meaning of its own
// in upper case, so that another spelling is a slip.
func standardMethod(s string) bool {
	return slices.Contains([]string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE"}, s)
}

// commonMethods are those of RFC 9110 and RFC 5789.
func commonMethods() []string {
	return []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}
}

// otherMethods are the others of IANA's registry of HTTP methods, and some that
// servers have without.
func otherMethods() []string {
	return []string{"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "CONNECT", "COPY", "LABEL", "LINK", "LOCK", "MERGE",
		"MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PRI", "PROPFIND", "PROPPATCH",
		"QUERY", "REBIND", "REPORT", "SEARCH", "TRACE", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF",
		"VERSION-CONTROL", "BAN", "LIST", "M-SEARCH", "NOTIFY", "PURGE", "SUBSCRIBE", "UNSUBSCRIBE"}
}

// misspelt returns the method that m probably stands for: m is not known, and a
// letter or two from one that is. It is "" otherwise.
func misspelt(m string) string {
	if slices.Contains(commonMethods(), m) || slices.Contains(otherMethods(), m) {
		return ""
	}
	for most := 1; most <= 2; most++ {
		for _, near := range commonMethods() {
			if distance(m, near) <= most {
				return near
			}
		}
		for _, near := range otherMethods() {
			if most == 1 && distance(m, near) <= most {
				return near
			}
		}
	}
	return ""
}
