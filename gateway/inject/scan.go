package inject

import (
	"slices"
	"strings"

	"sallyport/policy"
	"sallyport/secrets"
)

// scan is one Plan being made.
type scan struct {
	t       *Table
	in      Input
	own     map[string]*credential // shaped placeholders of the sandbox
	roomy   *roomyPlan             // nil: there is nothing to do yet
	injects bool                   // a secret of the rule is approved for the host

	edits     []edit
	uses      uses
	names     []string // of secrets whose values are needed
	trailer   *trailerCheck
	pathWas   string // as sent, when a placeholder in it is replaced
	queryEdit *queryEdit
	bodyCheck *bodyCheck
	later     *scanInput // of messages
	resigned  *signature
	client    string
	reason    policy.Reason // "": not refused
	message   string
}

// kind is the kind of place where a placeholder was found.
type kind uint8

const (
	inMethod kind = iota
	inHost
	inUserinfo
	inPath
	inQuery
	inHeaderName
	inHeader
	inBasic
	inTrailer
	inBody
	inWebSocket
	inOther // named by who looks
)

// place is where a text stands in a request.
type place struct {
	kind   kind
	header string   // name of the header, trailer or query parameter
	media  string   // of the body
	field  []string // of the body: the names on the way to it
	fixed  bool     // what is found here is not replaced: it was escaped or damaged
	doubt  string   // why servers may take this for another place; then nothing is replaced either
}

// String returns the place as records and messages name it.
func (p place) String() string {
	switch p.kind {
	case inHeader, inBasic, inTrailer:
		return [...]string{"header ", "basic ", "trailer "}[p.kind-inHeader] + p.header
	case inQuery:
		if plain(p.header) {
			return "query " + p.header
		}
	case inBody:
		if name := strings.Join(p.field, "."); plain(name) {
			return "body field " + name
		}
	}
	return [...]string{"method", "host", "userinfo", "path", "query", "header name",
		inBody: "body", inWebSocket: "websocket message", inOther: ""}[p.kind]
}

// name is p.String, which it does not make anew where a secret may stand.
func (t *Table) name(p place) string {
	if p.kind == inHeader {
		if text, ok := t.places[p.header]; ok {
			return text
		}
	}
	return p.String()
}

// plain says whether a name that the sandbox chose may stand in a record.
func plain(name string) bool {
	for i := range len(name) {
		if !word(name[i]) && strings.IndexByte("-.[]", name[i]) < 0 {
			return false
		}
	}
	return name != "" && len(name) <= secrets.MaxName
}

// bound says whether the rule lists a secret that may go to the host.
func (s *scan) bound() bool {
	for _, n := range s.in.Decision.Inject {
		if c := s.t.creds[n]; c != nil && c.covers(s.in.Host) {
			return s.in.Decision.Verdict == policy.Allow
		}
	}
	return false
}

// approved says whether the three agreements hold: the rule lists the secret,
// the secret's hosts cover the host, and the request came over TLS that was
// opened here and goes out over TLS that is verified.
func (s *scan) approved(c *credential) bool {
	return s.secure() && s.injects && slices.Contains(s.in.Decision.Inject, c.name) && c.covers(s.in.Host)
}

func (s *scan) secure() bool { return s.in.Scheme == policy.HTTPS && s.in.Intercepted }

// header looks into all lines of a header, also when one is Basic or escaped.
func (s *scan) header(name string, lines []string) {
	s.folded(place{kind: inHeaderName, header: name}, name)
	for i, text := range lines {
		f := s.text(place{kind: inHeader, header: name}, text)
		if scheme, encoded, ok := isBasic(text); ok {
			f = f.and(s.basic(name, scheme, encoded))
		} else if !f.any() {
			f = f.and(s.escaped(place{kind: inHeader, header: name}, text))
		}
		if fate := f.fate(); fate != untouched {
			s.edit(name, lines).fate[i] = fate
		}
	}
}

// basic looks into a Basic credential. One that does not decode is searched
// in every alignment, and no placeholder may be in it.
func (s *scan) basic(name, scheme, encoded string) found {
	p := place{kind: inBasic, header: name}
	if d, ok := decodeBasic(scheme, encoded); ok {
		return s.text(p, d.user).and(s.text(p, d.pass))
	}
	p.fixed = true
	var f found
	for _, text := range alignments(encoded) {
		f = f.and(s.text(p, text))
	}
	return f
}

// found says what a text holds.
type found struct{ swapped, passed, refused bool }

func (f found) any() bool { return f != found{} }

func (f found) fate() fate {
	switch {
	case f.swapped:
		return swapped
	case f.passed:
		return passed
	}
	return untouched
}

func (f found) and(g found) found {
	return found{f.swapped || g.swapped, f.passed || g.passed, f.refused || g.refused}
}

// text judges every placeholder in a text.
func (s *scan) text(p place, text string) found {
	var f found
	for from := 0; ; {
		h, ok := s.t.find.next(text, from, s.own)
		if !ok {
			return f
		}
		f = f.and(s.judge(h, p, text))
		from = h.end
	}
}

// folded judges a text that is or may be changed to another case on its way,
// so that a name in it is known in any.
func (s *scan) folded(p place, text string) {
	p.fixed = true
	if strings.IndexByte(text, '$') >= 0 && s.text(p, strings.ToUpper(text)).any() {
		return
	}
	if s.t.find.shapes != nil {
		s.text(p, text)
	}
}

// escaped judges a text percent-decoded once, if that can bring a placeholder
// to light.
func (s *scan) escaped(p place, text string) found {
	if strings.IndexByte(text, '%') < 0 {
		return found{}
	}
	if s.t.find.shapes == nil && !strings.Contains(text, "%24") && strings.IndexByte(text, '$') < 0 {
		return found{}
	}
	p.fixed = true
	return s.text(p, unescape(text))
}

// judge says what becomes of one placeholder.
func (s *scan) judge(h hit, p place, text string) found {
	if h.other {
		u := Use{Place: p.String(), Action: Withheld}
		if o, ok := s.t.owners.owner(text[h.start:h.end]); ok {
			u.Name, u.Sandbox = o.cred.name, o.sandbox
		}
		return s.withhold(u, policy.PlaceholderLeak, "the "+p.String()+" holds a placeholder that is not this sandbox's")
	}
	c := h.cred
	u := Use{Name: c.name, Place: s.t.name(p), Action: Injected}
	switch {
	case s.approved(c):
		if !c.allows(p) {
			message := "the placeholder of " + c.name + " may not stand in the " + u.Place
			if p.doubt != "" {
				message += ": " + p.doubt
			}
			return s.withhold(u, policy.PlaceholderPlace, message)
		}
		s.inject(u)
		return found{swapped: true}
	case !s.secure() && c.covers(s.in.Host):
		return s.withhold(u, policy.PlaintextInjection, "the placeholder of "+c.name+" in the "+u.Place+" is replaced only over HTTPS that the gateway intercepts")
	}
	return s.withhold(u, policy.PlaceholderLeak, "the placeholder of "+c.name+" in the "+u.Place+" may not be sent to "+s.in.Host)
}

// allows says whether c may stand in a place.
func (c *credential) allows(p place) bool {
	if p.fixed || p.doubt != "" || c.certificate {
		return false
	}
	if c.sign != nil {
		return c.sign.mayStand(p)
	}
	switch p.kind {
	case inHeader, inBasic:
		return c.headers[p.header]
	case inQuery:
		return slices.Contains(c.query, p.header)
	case inPath:
		return c.path
	case inBody:
		return c.body != nil && c.body.covers(p.media) && c.body.allows(p.field)
	case inWebSocket:
		return c.websocket
	}
	return false
}

// withhold refuses the request, or lets the text pass unchanged where the
// rule says so.
func (s *scan) withhold(u Use, reason policy.Reason, message string) found {
	u.Action = Withheld
	s.uses.add(u)
	if r := s.in.Decision.Rule; r != nil && r.OnLeakPass {
		return found{passed: true}
	}
	s.refuse(reason, message)
	return found{refused: true}
}

// refuse notes the gravest reason, and of two as grave the one whose message
// sorts first, so that the order of a map does not show.
func (s *scan) refuse(reason policy.Reason, message string) {
	if old, now := severity(s.reason), severity(reason); s.reason == "" || now > old || now == old && message < s.message {
		s.reason, s.message = reason, message
	}
}

// unescape decodes percent escapes once; what is no escape stays as it is.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi < 16 && lo < 16 {
				b = append(b, hi<<4|lo)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// unhex returns the value of a hexadecimal digit, or 16 and more.
func unhex(c byte) byte {
	switch {
	case c-'0' < 10:
		return c - '0'
	case c|0x20-'a' < 6:
		return c | 0x20 - 'a' + 10
	}
	return 16
}
