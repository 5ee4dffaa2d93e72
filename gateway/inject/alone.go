package inject

import (
	"slices"
	"strings"

	"sallyport/policy"
)

// stand is what a placeholder is read as where only its place counts. It is in
// no header and in no scheme.
const stand = 0x00

// marked returns text with stand for every placeholder.
func (s *scan) marked(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	done := 0
	for {
		h, ok := s.t.find.next(text, done, s.own)
		if !ok {
			break
		}
		b.WriteString(text[done:h.start])
		b.WriteByte(stand)
		done = h.end
	}
	b.WriteString(text[done:])
	return b.String()
}

// alone says whether a placeholder in a line of a credential header is all of
// the credential, so that the upstream finds no other beside it: it stands as
// one word, which it may be a part of, or behind one scheme; in one half of
// Basic, whose other is no credential; in a parameter, where the scheme has some
// (RFC 9110, section 11.4), without blanks around the equals sign, which may as
// well be padding.
func (s *scan) alone(header, line string) bool {
	if strings.IndexByte(line, stand) >= 0 {
		return false
	}
	if scheme, encoded, ok := isBasic(line); ok {
		if d, ok := decodeBasic(scheme, encoded); ok {
			user, pass := s.marked(d.user), s.marked(d.pass)
			inUser, inPass := strings.IndexByte(user, stand) >= 0, strings.IndexByte(pass, stand) >= 0
			if inUser || inPass {
				return (inUser || !s.isKey(user)) && (inPass || noPassword(pass))
			}
		}
	}
	text := strings.Trim(s.marked(line), " \t")
	if oneWord(text) {
		return true
	}
	end := strings.IndexAny(text, " \t")
	if end < 0 || !isScheme(header, text[:end]) {
		return false
	}
	rest := strings.TrimLeft(text[end:], " \t")
	return oneWord(rest) || parameters(rest)
}

// isKey says whether a text is a key of a well-known format, which some servers
// take as the user and then look at no password.
func (s *scan) isKey(text string) bool {
	is := false
	s.t.known(text, "", func(string) { is = true })
	return is
}

// noPassword says whether the password beside a placeholder as the user is none,
// but a word such as "x-oauth-basic", which has digits only where it is short.
// Some servers take the password and look at no user.
func noPassword(pass string) bool {
	digits := false
	for i := range len(pass) {
		if !alnum(pass[i]) && pass[i] != '-' && pass[i] != '_' {
			return false
		}
		digits = digits || pass[i]-'0' < 10
	}
	return len(pass) <= 8 || len(pass) <= 16 && !digits
}

// isScheme says whether the first word of a line is a scheme, and not a
// credential by itself: in a header that holds a bare key it has to be known.
func isScheme(header, word string) bool {
	const longest = len("EntraServicePrincipalKey") // none that is in use is longer
	if !strings.HasSuffix(header, "Authorization") {
		return simple(word)
	}
	for i := range len(word) {
		if !alnum(word[i]) && (i == 0 || word[i] != '-' && word[i] != '_') {
			return false
		}
	}
	return word != "" && len(word) <= longest
}

// simple says whether a scheme is one of those that are followed by a
// credential and nothing else.
func simple(scheme string) bool {
	switch strings.ToLower(scheme) {
	case "basic", "bearer", "token", "apikey", "api-key", "key":
		return true
	}
	return false
}

// oneWord says whether text is one credential: characters of those that have
// them (token68 of RFC 9110, and user:password), without what separates two.
func oneWord(text string) bool {
	for i := range len(text) {
		if c := text[i]; c != stand && !alnum(c) && strings.IndexByte("-._~+/=:@!$", c) < 0 {
			return false
		}
	}
	return text != ""
}

// parameters says whether text is a list of parameters, each with a name of
// its own and a value, and those with a placeholder with one word as value.
// The others only say who or what asks, so that none is the credential that
// the upstream takes.
func parameters(text string) bool {
	var names []string
	for text != "" {
		name, rest, ok := strings.Cut(text, "=")
		name = strings.ToLower(name)
		if !ok || !plain(name) || slices.Contains(names, name) {
			return false
		}
		names = append(names, name)
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if value, rest, ok = strings.Cut(quoted, `"`); !ok || !oneValue(value) {
				return false
			}
			rest = strings.TrimLeft(rest, " \t")
			if rest != "" && rest[0] != ',' {
				return false
			}
			rest = strings.TrimPrefix(rest, ",")
		} else {
			value, rest, _ = strings.Cut(rest, ",")
			if !oneWord(strings.TrimRight(value, " \t")) {
				return false
			}
		}
		if strings.IndexByte(value, stand) < 0 && !describes(name) {
			return false
		}
		text = strings.TrimLeft(rest, " \t")
	}
	return len(names) > 0
}

// describes says whether a parameter of this name, in lower case, is no
// credential in any scheme that is in use; a consumer key of OAuth names an
// application (RFC 5849, section 1.1).
func describes(name string) bool {
	switch name {
	case "algorithm", "client", "consumer_key", "device", "deviceid", "email", "nonce", "oauth_consumer_key", "realm", "timestamp", "user", "userid", "username", "version":
		return true
	}
	return false
}

// oneValue says whether what is quoted is no list of credentials or of
// parameters, however it is read: servers that split a list before they look
// at quotes find those in it.
func oneValue(text string) bool {
	if strings.IndexByte(text, stand) >= 0 {
		return oneWord(text)
	}
	return !strings.ContainsAny(text, "\\,;\t") && !(strings.Contains(text, " ") && strings.Contains(text, "="))
}

// aloneInQuery is alone for the parameters in which placeholders are replaced.
func (s *scan) aloneInQuery() {
	if s.queryEdit == nil || s.foreignMode() == policy.ForeignPass {
		return
	}
	i := -1
	for part := range strings.SplitSeq(s.queryEdit.was, "&") {
		if i++; s.queryEdit.fate[i] != swapped {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		if value = unescape(strings.ReplaceAll(value, "+", " ")); !s.alone("", value) {
			s.beside(place{kind: inQuery, header: unescape(name)})
		}
	}
}

// beside refuses a credential of the sandbox's own in the field of a
// placeholder: it cannot be taken out for itself.
func (s *scan) beside(p place) {
	s.uses.add(Use{Place: p.String(), Action: Withheld})
	s.refuse(policy.ForeignCredential, "the "+p.String()+" holds more than a placeholder behind one scheme, which may be another credential; send the placeholder alone, with no parameter that could be one beside it, or set foreign = \"pass\" on the rule")
}

// foreignMode is what the rule does about credentials of the sandbox's own.
func (s *scan) foreignMode() policy.Foreign {
	if r := s.in.Decision.Rule; r != nil {
		return r.Foreign
	}
	return policy.ForeignStrip
}
