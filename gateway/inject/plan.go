package inject

import (
	"net/http"
	"net/textproto"
	"slices"
	"sync"

	"sallyport/policy"
	"sallyport/secrets"
)

// Input is a request that policy has decided.
type Input struct {
	Sandbox     string        // whose placeholders are its own
	Request     *http.Request // as the sandbox sent it; only read
	Host        string        // canonical
	Scheme      policy.Scheme
	Intercepted bool // TLS was opened here, and the upstream's certificate will be verified for Host
	Decision    policy.Decision
}

// Plan is what will be done to one request. It holds no value.
type Plan struct {
	table    *Table
	own      map[string]*credential // shaped placeholders of the sandbox
	edits    []edit
	path     string // as sent, when a placeholder in it is replaced
	query    *queryEdit
	uses     uses
	secrets  []string      // sorted
	trailer  *trailerCheck // nil: the request announces no trailer
	body     *bodyCheck    // nil: the body is not looked into
	messages *scanInput    // nil: neither are messages
	resigned *signature    // nil: the request is not signed anew
	form     *formCheck    // nil: the body is no form that may be signed
	client   string        // secret that is the client's certificate; "": none

	covered []string       // secrets whose values are covered in the response, sorted
	made    []secrets.Held // what Apply has made of values and sent

	take func(n int64) bool // see Hold; nil: it is always true
	room Room               // see Within

	mu    sync.Mutex
	later uses // what was done after Plan
}

// Secrets returns the names of the secrets whose values Apply needs, sorted.
func (p *Plan) Secrets() []string { return p.secrets }

// Uses returns what Apply will do and what was found and left alone, for the
// record.
func (p *Plan) Uses() []Use { return p.uses }

// Covered returns the names of the secrets whose values are to be covered in
// the response: all that the request's host may be given, by any rule and in
// any sandbox, since it may send back what it was given before. It is empty
// where the rule turns that off.
func (p *Plan) Covered() []string { return p.covered }

// Made returns what Apply has made of values and sent, as a signature: it is to
// be covered in the response as they are.
func (p *Plan) Made() []secrets.Held { return p.made }

// Drops says whether Apply takes the lines of a header out that the sandbox
// sent.
func (p *Plan) Drops(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return slices.ContainsFunc(p.edits, func(e edit) bool { return e.name == name && slices.Contains(e.fate, dropped) })
}

// Later returns what was done to the body and to messages so far. It adds to
// Uses, and is complete when they have been sent.
func (p *Plan) Later() []Use {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.later).sorted()
}

// record keeps what became of a body or of messages.
func (p *Plan) record(list uses) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.later = append(p.later, list...)
}

// Empty says whether Apply and Messages change nothing.
func (p *Plan) Empty() bool {
	return len(p.edits) == 0 && p.path == "" && p.query == nil && p.trailer == nil && p.body == nil && p.messages == nil && p.resigned == nil && p.form == nil && p.client == ""
}

// Plan reads a request and says what will be done to it, or why it must not
// go out. It changes nothing and needs no value. For a request without a
// placeholder to a host without a secret it does not allocate.
func (t *Table) Plan(in Input) (*Plan, *Refusal) {
	s := scan{t: t, in: in, own: t.owners.of(in.Sandbox)}
	s.injects = s.bound()
	s.target(in.Request)
	for name, lines := range in.Request.Header {
		s.header(name, lines)
	}
	s.trailers(in.Request)
	if s.injects && s.reason == "" {
		s.foreign(in.Request)
		s.setAll(in.Request.Header)
	}
	if s.reason == "" {
		s.signature(in.Request)
		s.certificate()
		s.tokenMethod()
	}
	if s.reason == "" {
		s.single()
		s.aloneInQuery()
		s.body(in.Request)
		s.messages(in.Request)
	}
	form := s.form(in.Request)
	if s.reason != "" {
		return nil, &Refusal{Reason: s.reason, Message: s.message, Uses: s.uses.sorted()}
	}
	covered := s.covered()
	if len(covered) == 0 && len(s.edits) == 0 && len(s.uses) == 0 && s.trailer == nil && s.bodyCheck == nil && s.later == nil && form == nil {
		return t.empty, nil // every other change has a use
	}
	slices.Sort(s.names)
	s.room().Plan = Plan{
		table: t, own: s.own, edits: s.edits, path: s.pathWas, query: s.queryEdit,
		uses: s.uses.sorted(), secrets: slices.Compact(s.names), trailer: s.trailer, body: s.bodyCheck, messages: s.later, covered: covered, resigned: s.resigned, form: form, client: s.client,
	}
	return &s.roomy.Plan, nil
}

// roomyPlan is a Plan with room for what most plans have: one secret in one line
// of one header.
type roomyPlan struct {
	Plan
	names [1]string
	uses  [1]Use
	edits [1]edit
	was   [1]string
	fates [1]fate
}

func (s *scan) room() *roomyPlan {
	if s.roomy == nil {
		s.roomy = &roomyPlan{}
	}
	return s.roomy
}

// inject notes that the value of a secret is put in.
func (s *scan) inject(u Use) {
	if s.names == nil {
		s.names = s.room().names[:0]
	}
	if s.uses == nil {
		s.uses = s.room().uses[:0]
	}
	s.names = append(s.names, u.Name)
	s.uses.add(u)
}

// covered returns the secrets that the request's host may have been given.
func (s *scan) covered() []string {
	if r := s.in.Decision.Rule; s.in.Decision.Verdict != policy.Allow || r != nil && r.NoScrub {
		return nil
	}
	return s.t.givenTo(s.in.Host)
}

// edit is what is done to one header of the request.
type edit struct {
	name string      // canonical
	was  []string    // its lines when it was planned
	fate []fate      // of each line
	set  *credential // its value replaces all lines
}

// fate is what becomes of a line of a header.
type fate uint8

const (
	untouched fate = iota
	swapped        // its placeholders are replaced
	passed         // holds a placeholder that goes out as text
	dropped
)

// edit returns the edit of a header, a new one if need be.
func (s *scan) edit(name string, lines []string) *edit {
	if e := s.edited(name); e != nil {
		return e
	}
	e := edit{name: name}
	if s.edits == nil && len(lines) == 1 {
		r := s.room()
		s.edits, e.was, e.fate = r.edits[:0], append(r.was[:0], lines...), r.fates[:]
	} else {
		e.was, e.fate = slices.Clone(lines), make([]fate, len(lines))
	}
	s.edits = append(s.edits, e)
	return &s.edits[len(s.edits)-1]
}

// edited returns the edit of a header that has one, else nil.
func (s *scan) edited(name string) *edit {
	for i := range s.edits {
		if s.edits[i].name == name {
			return &s.edits[i]
		}
	}
	return nil
}

// count returns how many lines have one of fates.
func (e *edit) count(fates ...fate) int {
	n := 0
	for _, f := range e.fate {
		if slices.Contains(fates, f) {
			n++
		}
	}
	return n
}

// foreign deals with the credentials that the sandbox brought along.
func (s *scan) foreign(req *http.Request) {
	mode := s.foreignMode()
	if mode == policy.ForeignPass {
		return
	}
	if req.URL != nil {
		s.foreignQuery(req.URL.RawQuery, mode)
	}
	for name, lines := range req.Header {
		if !s.credential(name) {
			continue
		}
		for i := range lines {
			if e := s.edited(name); e != nil && e.fate[i] != untouched {
				continue
			}
			if mode == policy.ForeignBlock {
				s.uses.add(Use{Place: "header " + name, Action: Withheld})
				s.refuse(policy.ForeignCredential, "header "+name+" holds a credential that is not one of this gateway's placeholders")
				continue
			}
			s.uses.add(Use{Place: "header " + name, Action: Stripped})
			s.edit(name, lines).fate[i] = dropped
		}
	}
}

// credential says whether a header carries credentials as far as this request
// is concerned, under this name or one that a server may take for the same.
// Cookies are the session's, also where a secret stands in one.
func (s *scan) credential(name string) bool {
	name = dashed(name)
	if s.t.credential[name] {
		return true
	}
	if name == "Cookie" {
		return false
	}
	for _, n := range s.in.Decision.Inject {
		if c := s.t.creds[n]; c != nil && c.dashed[name] && c.covers(s.in.Host) {
			return true
		}
	}
	return false
}

// setAll adds the credentials that are set whatever the client sent. One
// that the client put in a place of its own choice stays there, and a header
// in which another secret stands is left to that.
func (s *scan) setAll(header http.Header) {
	for _, n := range s.in.Decision.Inject {
		c := s.t.creds[n]
		if c == nil || c.set == "" || !s.approved(c) || slices.Contains(s.names, n) {
			continue
		}
		e := s.edit(c.set, header[c.set])
		if e.set != nil || e.count(swapped) > 0 {
			continue
		}
		e.set = c
		s.inject(Use{Name: n, Place: s.t.name(place{kind: inHeader, header: c.set}), Action: Injected})
	}
}

// signed says whether a header holds a signature, which is made anew.
func (s *scan) signed(name string) bool {
	return s.resigned != nil && !s.resigned.query && name == "Authorization"
}

// single holds that no header leaves with two credentials, of which the
// upstream may take either (the same one twice goes out once).
func (s *scan) single() {
	for i := range s.edits {
		e := &s.edits[i]
		if e.set != nil || e.name == "Cookie" || e.count(swapped) == 0 {
			continue
		}
		first := slices.Index(e.fate, swapped)
		for j := first + 1; j < len(e.was); j++ {
			if e.fate[j] == swapped && e.was[j] == e.was[first] {
				e.fate[j] = dropped
			}
		}
		if e.count(untouched, swapped, passed) > 1 {
			s.refuse(policy.Smuggling, "header "+e.name+" is sent more than once")
		}
		if s.several(e.name, e.was[first]) {
			s.refuse(policy.Smuggling, "header "+e.name+" holds more than one credential")
		} else if s.foreignMode() != policy.ForeignPass && !s.signed(e.name) && !s.alone(e.name, e.was[first]) {
			s.beside(place{kind: inHeader, header: e.name})
		}
	}
}
