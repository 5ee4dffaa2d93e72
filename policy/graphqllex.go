package policy

import (
	"errors"
	"strings"
)

func isName(token string) bool { return token != "" && isNameByte(token[0]) && !isDigit(token[0]) }

func isNameByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c)
}

// Tokens that stand for many. No token of a document is written so.
const (
	nameToken   = " name"
	stringToken = " string"
	numberToken = " number"
)

// graphQLLexer divides a document into tokens.
type graphQLLexer struct {
	text  string // what is left
	token string // the one at hand; "" at the end
}

// advance takes the next token.
func (l *graphQLLexer) advance() error {
	if err := l.ignored(); err != nil {
		return err
	}
	if l.text == "" {
		l.token = ""
		return nil
	}
	c := l.text[0]
	switch {
	case strings.IndexByte("!$&():=@[]{|}", c) >= 0:
		l.take(1)
	case strings.HasPrefix(l.text, "..."):
		l.take(3)
	case c == '"':
		return l.str()
	case c == '-' || isDigit(c):
		return l.number()
	case isNameByte(c):
		n := 1
		for n < len(l.text) && isNameByte(l.text[n]) {
			n++
		}
		l.take(n)
	default:
		return errNoDocument
	}
	return nil
}

func (l *graphQLLexer) take(n int) { l.token, l.text = l.text[:n], l.text[n:] }

// ignored skips blanks, commas and comments. What some take for the end of a
// line and others do not must not stand in a comment.
func (l *graphQLLexer) ignored() error {
	for {
		l.text = strings.TrimLeft(l.text, " \t\r\n,")
		if !strings.HasPrefix(l.text, "#") {
			return nil
		}
		comment, rest := l.text, ""
		if i := strings.IndexAny(l.text, "\r\n"); i >= 0 {
			comment, rest = l.text[:i], l.text[i:]
		}
		if strings.ContainsFunc(comment, func(c rune) bool {
			return c < ' ' && c != '\t' || c == 0x7f || c == 0x85 || c == 0x2028 || c == 0x2029
		}) {
			return errNoDocument
		}
		l.text = rest
	}
}

// str takes a string. One of three quotation marks is an empty one and the
// beginning of another where block strings are not known.
func (l *graphQLLexer) str() error {
	if strings.HasPrefix(l.text, `"""`) {
		return errors.New("has a block string in its document, which old servers read in another way; use a variable")
	}
	for i := 1; i < len(l.text); i++ {
		switch c := l.text[i]; {
		case c == '\\':
			i++
			if i >= len(l.text) || strings.IndexByte(`"\/bfnrtu`, l.text[i]) < 0 {
				return errNoDocument
			}
		case c == '"':
			l.token, l.text = stringToken, l.text[i+1:]
			return nil
		case c < ' ' && c != '\t':
			return errNoDocument
		}
	}
	return errNoDocument
}

// number takes an Int or a Float. No name may begin where it ends.
func (l *graphQLLexer) number() error {
	r := jsonReader{text: l.text}
	if err := r.number(); err != nil {
		return errNoDocument
	}
	if r.text != "" && (isNameByte(r.text[0]) || r.text[0] == '.') {
		return errNoDocument
	}
	l.token, l.text = numberToken, r.text
	return nil
}
