package http2guard

import (
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// request is what matters of one head. Its rules are those of net/http's
// server, in that order.
type request struct {
	room    int // for fields, in bytes as RFC 9113, section 6.5.2 counts them
	invalid string
	cut     bool // there was no room
	regular bool // a field that is no pseudo-header was seen

	pseudo  []hpack.HeaderField
	host    string // the first field of that name
	hosts   int
	te      []string
	length  string // the first Content-Length
	between string // a field that is meant for a connection
}

// field takes one field, and says whether more are wanted.
func (h *request) field(f hpack.HeaderField) bool {
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		h.invalid = "illegal character in a field value"
	}
	if strings.HasPrefix(f.Name, ":") {
		if h.regular {
			h.invalid = "pseudo-header after a field"
		}
	} else {
		h.regular = true
		if !validName(f.Name) {
			h.invalid = "illegal field name"
		}
	}
	if h.invalid != "" {
		return false
	}
	if h.room -= int(f.Size()); h.room < 0 {
		h.cut = true
		return false
	}
	switch f.Name {
	case "host":
		if h.hosts++; h.hosts == 1 {
			h.host = f.Value
		}
	case "content-length":
		if h.length == "" {
			h.length = f.Value
		}
	case "te":
		h.te = append(h.te, f.Value)
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		h.between = f.Name
	}
	if f.Name[0] == ':' {
		h.pseudo = append(h.pseudo, f)
	}
	return true
}

// validName says whether a name is a token in lower case (RFC 9113, section
// 8.2.1).
func validName(s string) bool {
	for _, r := range s {
		if !httpguts.IsTokenRune(r) || 'A' <= r && r <= 'Z' {
			return false
		}
	}
	return s != ""
}

func (h *request) value(name string) string {
	for _, f := range h.pseudo {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// fault says why the server refuses the request, or returns nil.
func (h *request) fault() *Fault {
	detail := h.invalid
	if detail == "" {
		detail = h.pseudoFault()
	}
	if detail == "" {
		detail = h.targetFault()
	}
	f := h.told(detail)
	switch {
	case detail != "":
	case h.cut:
		f.TooLarge, f.Detail = true, "the request head is too large"
	case h.between != "":
		f.Detail = "field " + h.between + " in HTTP/2"
	case len(h.te) > 1 || len(h.te) == 1 && h.te[0] != "trailers" && h.te[0] != "":
		f.Detail = "field te other than trailers in HTTP/2"
	default:
		return nil
	}
	return &f
}

// told begins what is said of the request.
func (h *request) told(detail string) Fault {
	f := Fault{Detail: detail, Method: h.value(":method"), Authority: h.authority()}
	f.Path, _, _ = strings.Cut(h.value(":path"), "?")
	return f
}

// authority is what the server takes for it.
func (h *request) authority() string {
	if a := h.value(":authority"); a != "" {
		return a
	}
	return h.host
}

// target is what the server calls the request's URI.
func (h *request) target() string {
	if h.value(":method") == "CONNECT" && h.value(":protocol") == "" {
		return h.authority()
	}
	return h.value(":path")
}

// insecure says whether the request is for another scheme than its
// connection, which net/http does not look at.
func (h *request) insecure() bool {
	if h.value(":method") == "CONNECT" && h.value(":protocol") == "" {
		return false // it has none
	}
	return h.value(":scheme") != "https"
}

// pseudoFault looks at which pseudo-headers there are (RFC 9113, section 8.3).
func (h *request) pseudoFault() string {
	for i, f := range h.pseudo {
		switch f.Name {
		case ":method", ":path", ":scheme", ":authority", ":protocol":
		default:
			return "pseudo-header that is no request's"
		}
		for _, g := range h.pseudo[:i] {
			if f.Name == g.Name {
				return "pseudo-header twice"
			}
		}
	}
	return ""
}

// targetFault looks at what they say (RFC 9113, section 8.3.1).
func (h *request) targetFault() string {
	method, path, scheme, authority := h.value(":method"), h.value(":path"), h.value(":scheme"), h.value(":authority")
	plain := h.value(":protocol") == ""
	switch {
	case method == "CONNECT" && plain:
		if path != "" || scheme != "" || authority == "" {
			return "malformed CONNECT"
		}
		return ""
	case method != "CONNECT" && (method == "" || path == "" || scheme != "http" && scheme != "https"):
		return "no method, path or scheme"
	}
	if strings.Contains(h.authority(), "@") && (scheme == "http" || scheme == "https") {
		return "user information in the authority"
	}
	if _, err := url.ParseRequestURI(path); err != nil {
		return "malformed path"
	}
	return ""
}
