package secrets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MinName and MaxName bound the length of a secret's name, in bytes.
	MinName = 3
	MaxName = 64
	// MinRand is the shortest random part of a shaped placeholder, in
	// characters: half of it tells sandboxes apart, the rest is a check by
	// which the gateway knows its own placeholders without a table of them.
	MinRand = 16
	// MaxPlaceholder is the longest placeholder, in bytes.
	MaxPlaceholder = 256
	// MinPrefix is the shortest fixed text before a random part, in bytes.
	MinPrefix = 3
	// minFixed is the shortest placeholder without a random part, in bytes.
	minFixed = 8
	// checkLen is the length of the check at the end of a random part.
	checkLen = 8
)

// Name says whether s is a secret's name: [A-Z][A-Z0-9_]{2,63}.
func Name(s string) bool {
	if len(s) < MinName || len(s) > MaxName || s[0] < 'A' || s[0] > 'Z' {
		return false
	}
	for i := range len(s) {
		if !NameByte(s[i]) {
			return false
		}
	}
	return true
}

// NameByte says whether b may stand in a secret's name.
func NameByte(b byte) bool {
	return b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_'
}

// Template is the form of a shaped placeholder, such as "ghp_{rand:36}": the
// fixed text Prefix, Rand characters of [A-Za-z0-9] that differ from sandbox
// to sandbox, and the fixed text Suffix. With Rand 0 the placeholder is
// Prefix, the same for every sandbox. The zero Template stands for "$NAME".
type Template struct {
	Prefix string
	Rand   int // characters; 0 or MinRand and more
	Suffix string
}

// ParseTemplate reads the placeholder attribute of a secret. "" and the
// literal "$NAME" of a name give the zero Template.
func ParseTemplate(s string) (Template, error) {
	if s == "" || s[0] == '$' && Name(s[1:]) {
		return Template{}, nil
	}
	prefix, rest, found := strings.Cut(s, "{rand:")
	t := Template{Prefix: prefix}
	if found {
		digits, suffix, closed := strings.Cut(rest, "}")
		n, err := strconv.Atoi(digits)
		if !closed || err != nil {
			return Template{}, errors.New("placeholder: write {rand:N} with N a number of characters")
		}
		t.Rand, t.Suffix = n, suffix
		if err := t.checkRand(); err != nil {
			return Template{}, err
		}
	} else if len(prefix) < minFixed {
		return Template{}, fmt.Errorf("placeholder: a fixed text needs at least %d characters", minFixed)
	}
	for _, part := range []string{t.Prefix, t.Suffix} {
		for i := range len(part) {
			if strings.IndexByte("{}", part[i]) >= 0 {
				return Template{}, errors.New("placeholder: braces stand in {rand:N} alone, which stands for N random characters, such as {rand:36}")
			}
			if !shapeByte(part[i]) {
				return Template{}, fmt.Errorf("placeholder: the character %q is not allowed; use letters, digits and - _ . ~ : / + = @", part[i])
			}
		}
	}
	if t.Len() > MaxPlaceholder {
		return Template{}, fmt.Errorf("placeholder: longer than %d characters", MaxPlaceholder)
	}
	return t, nil
}

func (t Template) checkRand() error {
	switch {
	case t.Rand < MinRand:
		return fmt.Errorf("placeholder: {rand:N} needs at least %d characters, so that nobody guesses one", MinRand)
	case t.Rand > MaxPlaceholder:
		return fmt.Errorf("placeholder: longer than %d characters", MaxPlaceholder)
	case len(t.Prefix) < MinPrefix:
		return fmt.Errorf("placeholder: at least %d fixed characters must stand before {rand:N}, by which it is found", MinPrefix)
	case strings.Contains(t.Suffix, "{rand:"):
		return errors.New("placeholder: only one {rand:N} is allowed")
	}
	return nil
}

// shapeByte says whether b may stand in the fixed text of a placeholder:
// what stands in a header, a query and a shell word without quoting, and is
// no part of the $NAME grammar.
func shapeByte(b byte) bool {
	return alnum(b) || strings.IndexByte("-_.~:/+=@", b) >= 0
}

func alnum(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}

// IsZero says whether t is the plain "$NAME" form.
func (t Template) IsZero() bool { return t == Template{} }

// Len returns the length of the placeholders of t, in bytes; 0 for "$NAME".
func (t Template) Len() int { return len(t.Prefix) + t.Rand + len(t.Suffix) }

// Placeholder returns the placeholder of the secret name in one sandbox. It
// depends on nothing but its arguments, so it is the same after a restart
// that keeps key.
func (t Template) Placeholder(name string, key []byte, sandbox string) string {
	switch {
	case t.IsZero():
		return "$" + name
	case t.Rand == 0:
		return t.Prefix
	}
	body := expand(key, "placeholder\x00"+sandbox+"\x00"+name, t.Rand-checkLen)
	return t.Prefix + body + expand(key, "check\x00"+t.Prefix+"\x00"+body, checkLen) + t.Suffix
}

// Genuine says whether text is a placeholder that Placeholder gave for this
// template and key, whatever the sandbox and the name.
func (t Template) Genuine(text string, key []byte) bool {
	if t.Rand == 0 || len(text) != t.Len() || !strings.HasPrefix(text, t.Prefix) || !strings.HasSuffix(text, t.Suffix) {
		return false
	}
	random := text[len(t.Prefix) : len(t.Prefix)+t.Rand]
	body, check := random[:t.Rand-checkLen], random[t.Rand-checkLen:]
	return hmac.Equal([]byte(expand(key, "check\x00"+t.Prefix+"\x00"+body, checkLen)), []byte(check))
}

// NewPlaceholder returns the placeholder that template gives the secret name
// in one sandbox: "$NAME" for an empty template and for one that
// ParseTemplate refuses.
func NewPlaceholder(template, name string, key []byte, sandboxName string) string {
	t, err := ParseTemplate(template)
	if err != nil {
		t = Template{}
	}
	return t.Placeholder(name, key, sandboxName)
}

// expand derives n characters of [A-Za-z0-9] from HMAC-SHA256 in counter
// mode. Bytes from 248 on are passed over, so that all 62 are as likely.
func expand(key []byte, label string, n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 0, n)
	mac := hmac.New(sha256.New, key)
	var block [sha256.Size]byte
	for counter := uint32(0); len(out) < n; counter++ {
		mac.Reset()
		_ = binary.Write(mac, binary.BigEndian, counter)
		mac.Write([]byte(label))
		for _, b := range mac.Sum(block[:0]) {
			if b < 248 && len(out) < n {
				out = append(out, alphabet[b%62])
			}
		}
	}
	return string(out)
}
