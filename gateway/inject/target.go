package inject

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sallyport/policy"
	"sallyport/secrets"
)

// CredentialParams returns the query parameters that are foreign credentials
// on a rule that injects, besides those that a secret of the rule names.
func CredentialParams() []string {
	return []string{
		"access_token", "api-key", "api_key", "apikey", "auth_token", "private_token", "subscription-key", "x-api-key",
	}
}

// target looks into what a request says before its headers.
func (s *scan) target(r *http.Request) {
	s.folded(place{kind: inMethod}, r.Method)
	s.folded(place{kind: inHost}, r.Host)
	if r.URL == nil {
		return
	}
	if r.URL.Host != r.Host {
		s.folded(place{kind: inHost}, r.URL.Host)
	}
	if r.URL.User != nil {
		s.text(place{kind: inUserinfo}, r.URL.User.String())
	}
	s.text(place{kind: inPath, fixed: true}, r.URL.Opaque)
	s.path(r.URL)
	s.query(r.URL.RawQuery)
}

// sentPath is the path of a URL that was read, byte for byte, also where
// net/url would write it in another way.
func sentPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// path looks into the path, decoded once, and as it was sent.
func (s *scan) path(u *url.URL) {
	f := s.text(place{kind: inPath}, u.Path)
	if !f.any() {
		f = s.text(place{kind: inPath, fixed: true}, u.RawPath)
	}
	if f.swapped {
		s.pathWas = sentPath(u)
	}
}

// queryEdit is what is done to the query.
type queryEdit struct {
	was  string
	fate []fate // of each part between ampersands
}

// query looks into the query: parameter by parameter, decoded once, and
// otherwise as it was sent.
func (s *scan) query(raw string) {
	if !s.suspicious(raw) {
		return
	}
	var all found
	fates := make([]fate, 0, 8)
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		name = unescape(name)
		f := s.text(place{kind: inQuery, fixed: true}, name)
		where := place{kind: inQuery, header: name}
		if _, behind, cut := strings.Cut(value, ";"); cut && s.suspicious(behind) {
			where.doubt = doubtSemicolon
		}
		f = f.and(s.text(where, unescape(value)))
		if !f.any() {
			f = s.text(place{kind: inQuery, fixed: true}, part)
		}
		fates = append(fates, f.fate())
		all = all.and(f)
	}
	if all.swapped || all.passed {
		s.queryEdit = &queryEdit{was: raw, fate: fates}
	}
}

// suspicious says whether a text may hold a placeholder, as it is or decoded.
func (s *scan) suspicious(text string) bool {
	if _, ok := s.t.find.next(text, 0, s.own); ok {
		return true
	}
	if strings.IndexByte(text, '%') < 0 || s.t.find.shapes == nil && !strings.Contains(text, "%24") && strings.IndexByte(text, '$') < 0 {
		return false
	}
	_, ok := s.t.find.next(unescape(text), 0, s.own)
	return ok
}

// foreignQuery deals with credentials in the query that the sandbox brought
// along.
func (s *scan) foreignQuery(raw string, mode policy.Foreign) {
	if raw == "" {
		return
	}
	i := -1
	for part := range strings.SplitSeq(raw, "&") {
		i++
		s.behindSemicolon(part)
		name, value, _ := strings.Cut(part, "=")
		if value == "" || !s.credentialParam(name) || s.queryEdit != nil && s.queryEdit.fate[i] != untouched {
			continue
		}
		name = place{kind: inQuery, header: unescape(name)}.String()
		if mode == policy.ForeignBlock {
			s.uses.add(Use{Place: name, Action: Withheld})
			s.refuse(policy.ForeignCredential, name+" holds a credential that is not one of this gateway's placeholders")
			continue
		}
		if s.queryEdit == nil {
			s.queryEdit = &queryEdit{was: raw, fate: make([]fate, strings.Count(raw, "&")+1)}
		}
		s.queryEdit.fate[i] = dropped
		s.uses.add(Use{Place: name, Action: Stripped})
	}
}

// behindSemicolon refuses a credential behind a semicolon, which servers read
// as the beginning of a parameter or as a part of a value.
func (s *scan) behindSemicolon(part string) {
	_, rest, ok := strings.Cut(part, ";")
	for ok {
		var param string
		param, rest, ok = strings.Cut(rest, ";")
		if name, value, _ := strings.Cut(param, "="); value != "" && s.credentialParam(name) {
			name = place{kind: inQuery, header: unescape(name)}.String()
			s.uses.add(Use{Place: name, Action: Withheld})
			s.refuse(policy.ForeignCredential, name+" stands behind a semicolon and holds a credential that may not be one of this gateway's placeholders; separate parameters by ampersands")
		}
	}
}

// paramKey is the name of a parameter, decoded, as a server may read it that
// knows parameters as variables or lists: in one case, and every character but
// letters and digits as an underscore, without blanks around it, what is behind
// a NUL, and the brackets of a list ("a[]", "a[0]", "[a]").
func paramKey(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.TrimLeft(strings.Trim(name, " +\t\r\n\v\f"), "[]")
	if i := strings.IndexAny(name, "[]"); i > 0 && strings.Trim(name[i:], "[]0123456789") == "" {
		name = name[:i]
	}
	return strings.Map(func(r rune) rune {
		if r > 0x7f || !alnum(byte(r)) {
			return '_'
		}
		return r
	}, strings.ToLower(name))
}

func (s *scan) credentialParam(name string) bool {
	name = unescape(name)
	key := paramKey(name)
	if s.t.params[key] {
		return true
	}
	for _, n := range s.in.Decision.Inject {
		c := s.t.creds[n]
		if c == nil || !c.covers(s.in.Host) {
			continue
		}
		if slices.Contains(c.keys, key) || c.sign != nil && signs(name) && !slices.Contains(s.names, n) {
			return true
		}
	}
	return false
}

// signs says whether a parameter, in any case, is part of a signature in the
// query: of version 4, of version 2, or of a form (POST policy).
func signs(name string) bool {
	name = strings.ToLower(name)
	return signsAlone(name) || name == "signature"
}

// signsAlone says whether it, in lower case, is nothing else anywhere.
func signsAlone(name string) bool {
	switch name {
	case "x-amz-credential", "x-amz-signature", "x-amz-security-token", "awsaccesskeyid":
		return true
	}
	return false
}

// applyTarget changes path and query of the outgoing request.
func (p *Plan) applyTarget(u *url.URL, values map[string]secrets.Value) error {
	if p.path != "" {
		opaque := u.Opaque != "" // it is sent as it is, and the path of net/url is not
		if opaque && u.Opaque != p.path || !opaque && u.EscapedPath() != p.path {
			return errChanged
		}
		raw, err := p.replaceEscaped(place{kind: inPath}, p.path, values)
		if err != nil {
			return err
		}
		u.RawPath, u.Path = raw, unescape(raw)
		if opaque {
			u.Opaque = raw
		} else if u.EscapedPath() != raw {
			return errChanged
		}
	}
	if p.query == nil {
		return nil
	}
	if u.RawQuery != p.query.was {
		return errChanged
	}
	var kept []string
	i := -1
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		i++
		switch p.query.fate[i] {
		case dropped:
			continue
		case swapped:
			name, value, _ := strings.Cut(part, "=")
			value, err := p.replaceEscaped(place{kind: inQuery, header: unescape(name)}, value, values)
			if err != nil {
				return err
			}
			part = name + "=" + value
		}
		kept = append(kept, part)
	}
	u.RawQuery = strings.Join(kept, "&")
	return nil
}

// replaceEscaped puts values, percent-encoded, in the place of placeholders
// in a text that is percent-encoded. All other bytes stay as they are.
func (p *Plan) replaceEscaped(where place, raw string, values map[string]secrets.Value) (string, error) {
	decoded := unescape(raw)
	var b strings.Builder
	done, at := 0, 0 // offsets into raw and decoded that belong together
	for from := 0; ; {
		h, ok := p.table.find.next(decoded, from, p.own)
		if !ok {
			break
		}
		from = h.end
		if h.cred == nil || !h.cred.sendable() || !h.cred.allows(where) || !slices.Contains(p.secrets, h.cred.name) {
			continue
		}
		v, err := reveal(h.cred.name, values)
		if err != nil {
			return "", err
		}
		begin := done + rawLen(raw[done:], h.start-at)
		b.WriteString(raw[done:begin])
		b.WriteString(escape(v))
		done = begin + rawLen(raw[begin:], h.end-h.start)
		at = h.end
	}
	b.WriteString(raw[done:])
	return b.String(), nil
}

// rawLen returns how many bytes of a percent-encoded text decode to n bytes.
func rawLen(raw string, n int) int {
	i := 0
	for ; n > 0; n-- {
		if raw[i] == '%' && i+2 < len(raw) && unhex(raw[i+1]) < 16 && unhex(raw[i+2]) < 16 {
			i += 2
		}
		i++
	}
	return i
}

// escape percent-encodes every byte but the unreserved (RFC 3986, section
// 2.3), which is right in a path segment, a query and a form.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; alnum(c) || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
