package inject

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport/secrets"
)

// Apply changes the outgoing request: placeholders become values, foreign
// credentials go. Out is a copy of the planned request; headers that were
// taken out of it meanwhile stay out. An error says that the request must not
// be sent; it quotes no value, and out may be changed in part.
func (p *Plan) Apply(out *http.Request, values map[string]secrets.Value) error {
	if len(p.edits) > 0 && out.Header == nil {
		out.Header = make(http.Header)
	}
	for i := range p.edits {
		if err := p.edits[i].apply(p, out.Header, values); err != nil {
			return fmt.Errorf("header %s: %w", p.edits[i].name, err)
		}
	}
	if p.path != "" || p.query != nil {
		if out.URL == nil {
			return errChanged
		}
		if err := p.applyTarget(out.URL, values); err != nil {
			return fmt.Errorf("request target: %w", err)
		}
	}
	if p.body != nil && out.Body != nil && out.Body != http.NoBody {
		if err := p.body.apply(p, out, values); err != nil {
			return err
		}
	}
	if p.form != nil {
		if err := p.form.apply(p, out); err != nil {
			return err
		}
	}
	if p.trailer != nil {
		p.trailer.guard(out)
	}
	if p.resigned != nil {
		return p.resigned.apply(p, out, values, time.Now())
	}
	return nil
}

// errChanged says that out is not the request that was planned.
var errChanged = errors.New("changed since the request was planned")

func (e *edit) apply(p *Plan, header http.Header, values map[string]secrets.Value) error {
	if e.set != nil {
		v, err := reveal(e.set.name, values)
		if err != nil {
			return err
		}
		if e.name == "Authorization" && !strings.Contains(v, " ") {
			v = "Bearer " + v
		}
		header[e.name] = []string{v}
		return legal(v)
	}
	lines, ok := header[e.name]
	if !ok {
		return nil
	}
	if !slices.Equal(lines, e.was) {
		return errChanged
	}
	kept := make([]string, 0, len(lines))
	for i, text := range lines {
		switch e.fate[i] {
		case dropped:
			continue
		case swapped:
			var err error
			if text, err = p.line(e.name, text, values); err != nil {
				return err
			}
		}
		kept = append(kept, text)
	}
	if len(kept) == 0 {
		delete(header, e.name)
		return nil
	}
	header[e.name] = kept
	return nil
}

// line replaces the placeholders of one header line, inside Basic or as text.
func (p *Plan) line(header, text string, values map[string]secrets.Value) (string, error) {
	if scheme, encoded, ok := isBasic(text); ok {
		if d, ok := decodeBasic(scheme, encoded); ok {
			user, err := p.replace(header, d.user, values)
			if err != nil {
				return "", err
			}
			pass, err := p.replace(header, d.pass, values)
			if err != nil {
				return "", err
			}
			if user != d.user && strings.Contains(user, ":") {
				return "", errors.New("a value with a colon cannot be the user of a Basic credential")
			}
			if user != d.user || pass != d.pass {
				d.user, d.pass = user, pass
				return d.String(), nil
			}
		}
	}
	text, err := p.replace(header, text, values)
	if err != nil {
		return "", err
	}
	return text, legal(text)
}

// replace puts values in the place of placeholders, from left to right and
// once: what a value brings along is not looked at.
func (p *Plan) replace(header, text string, values map[string]secrets.Value) (string, error) {
	var b strings.Builder
	done := 0
	for from := 0; ; {
		h, ok := p.table.find.next(text, from, p.own)
		if !ok {
			break
		}
		from = h.end
		if h.cred == nil || !h.cred.sendable() || !h.cred.headers[header] || !slices.Contains(p.secrets, h.cred.name) {
			continue
		}
		v, err := reveal(h.cred.name, values)
		if err != nil {
			return "", err
		}
		if done == 0 {
			b.Grow(len(text) - (h.end - h.start) + len(v))
		}
		b.WriteString(text[done:h.start])
		b.WriteString(v)
		done = h.end
	}
	if done == 0 {
		return text, nil
	}
	b.WriteString(text[done:])
	return b.String(), nil
}

func reveal(name string, values map[string]secrets.Value) (string, error) {
	v := values[name].Reveal()
	if v == "" {
		return "", fmt.Errorf("secret %q: no value", name)
	}
	return v, nil
}

// legal holds that a header's value stays one line (RFC 9110, section 5.5).
func legal(value string) error {
	for i := range len(value) {
		if b := value[i]; b < 0x20 && b != '\t' || b == 0x7f {
			return errors.New("the value has a control character")
		}
	}
	return nil
}
