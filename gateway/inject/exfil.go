package inject

import (
	"encoding/base32"
	"net/http"
	"strings"

	"sallyport/policy"
	"sallyport/secrets"
)

// minOutgoing is the shortest value that is looked for in what a sandbox
// sends, in bytes: a shorter one stands in texts by chance.
const minOutgoing = 8

// distinctive says whether a value stands in a text by chance hardly ever: it
// is long, or mixes kinds of characters, as a key does and a name does not.
func distinctive(value string) bool {
	const long = 20 // bytes
	var kinds [3]bool
	for i := range len(value) {
		switch c := value[i]; {
		case c-'a' < 26:
			kinds[0] = true
		case c-'A' < 26:
			kinds[1] = true
		case c-'0' < 10:
			kinds[2] = true
		}
	}
	mixed := kinds[0] && kinds[1] || kinds[0] && kinds[2] || kinds[1] && kinds[2]
	return len(value) >= long || len(value) >= minOutgoing && mixed
}

// outgoing finds held values in what sandboxes send.
type outgoing struct {
	text  *seeker // values and their encodings; nil: nothing is held
	name  *seeker // what of them can stand in a name, folded; nil: none
	names []string
}

func newOutgoing(held []secrets.Held) *outgoing {
	o := &outgoing{}
	var texts, labels patternList
	var escaped []looseValue
	for _, h := range held {
		value := h.Value.Reveal()
		if !distinctive(value) {
			continue
		}
		o.names = append(o.names, h.Name)
		for _, p := range encodings(value) {
			texts.add(p, len(o.names)-1)
			labels.add(folded(p), len(o.names)-1)
		}
		escaped = append(escaped, looseForms(value, len(o.names)-1)...)
		labels.add(folded(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(value))), len(o.names)-1)
	}
	o.text, o.name = texts.seeker(), labels.seeker()
	if o.text != nil {
		o.text.beside(escaped)
	}
	return o
}

// patternList collects distinct patterns of minOutgoing bytes and more.
type patternList struct {
	patterns []string
	owner    []int
	seen     map[string]bool
}

func (l *patternList) add(p string, owner int) {
	if len(p) < minOutgoing || l.seen[p] {
		return
	}
	if l.seen == nil {
		l.seen = make(map[string]bool)
	}
	l.seen[p] = true
	l.patterns, l.owner = append(l.patterns, p), append(l.owner, owner)
}

func (l *patternList) seeker() *seeker {
	if len(l.patterns) == 0 {
		return nil
	}
	return newSeeker(l.patterns, l.owner)
}

// folded is a text as it comes in a name: in one case, and without the dots
// over which it can be spread.
func folded(s string) string { return strings.ToLower(strings.ReplaceAll(s, ".", "")) }

// Request says whether a request, as the sandbox sent it, carries a value
// that is held, or an encoding of it, in its target, its headers or the
// trailers that have come. It returns a refusal, or nil.
func (g *Guard) Request(r *http.Request) *Refusal {
	o := g.out
	if o.text == nil {
		return nil
	}
	var u uses
	look := func(p place, text string) { o.look(&u, p, text) }
	look(place{kind: inMethod}, r.Method)
	if p := (place{kind: inHost}); !o.named(&u, p.String(), r.Host) {
		look(p, r.Host)
	}
	if r.URL != nil {
		look(place{kind: inPath}, r.URL.EscapedPath())
		look(place{kind: inPath}, r.URL.Opaque)
		look(place{kind: inQuery}, r.URL.RawQuery)
		if r.URL.User != nil {
			look(place{kind: inUserinfo}, r.URL.User.String())
		}
	}
	o.fields(&u, inHeader, r.Header)
	o.fields(&u, inTrailer, r.Trailer)
	return exfiltration(u)
}

// Name says whether a name that a sandbox asks for or connects to carries a
// value that is held, also spread over labels, in any case.
func (g *Guard) Name(host string) *Refusal {
	o := g.out
	if o.name == nil || len(host) < minOutgoing {
		return nil
	}
	var u uses
	o.named(&u, "name", host)
	return exfiltration(u)
}

func (o *outgoing) in(u *uses, p place, text string) bool {
	if len(text) < o.text.shortest {
		return false
	}
	found := false
	each(o.text, text, func(owner, _, _ int) {
		found = true
		u.add(Use{Name: o.names[owner], Place: p.String(), Action: Withheld})
	})
	return found
}

func exfiltration(u uses) *Refusal {
	if len(u) == 0 {
		return nil
	}
	list := u.sorted()
	return &Refusal{
		Reason:  policy.SecretExfiltration,
		Message: "the " + list[0].Place + " holds the value of a secret",
		Uses:    list,
	}
}
