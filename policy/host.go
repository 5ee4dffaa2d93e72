package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxName  = 253  // bytes of a name without its root dot, RFC 1035 section 2.3.4
	maxLabel = 63   // bytes of a label, RFC 1035 section 2.3.4
	maxInput = 1024 // bytes looked at before normalisation; bounds the work of IDNA
)

// CanonicalHost returns the one form in which a host is compared everywhere:
// DNS questions, SNI, Host, secret binding and leaf certificates. A name is
// lower case, in A-labels (UTS 46, non-transitional) and without its one
// trailing dot. An IP literal is its canonical text without brackets; an
// IPv4-mapped IPv6 literal is the IPv4 address that it stands for.
//
// What no resolver should see is refused: empty or too long labels, a label
// that begins with a hyphen, any byte outside letters, digits, hyphen and
// underscore, and a last label that reads as a number, as in 127.1 or 0x7f.1.
// A canonical host is returned as it came, without allocation.
func CanonicalHost(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("host is empty")
	case len(s) > maxInput:
		return "", fmt.Errorf("host is longer than %d bytes", maxName)
	case s[0] == '[':
		if len(s) < 2 || s[len(s)-1] != ']' {
			return "", errors.New("host has an opening bracket without its closing one")
		}
		return canonicalIPv6(s[1 : len(s)-1])
	case strings.IndexByte(s, ':') >= 0:
		return canonicalIPv6(s)
	}
	name, ascii, err := lowerASCII(s)
	if err != nil {
		return "", err
	}
	if n := len(name); n > 0 && name[n-1] == '.' {
		name = name[:n-1]
	}
	if err := checkName(name); err != nil {
		return "", err
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; readsAsNumber(last) {
		// Digits of another script would make an address out of what no
		// client means as one.
		if a, err := netip.ParseAddr(name); err != nil || !a.Is4() || !ascii {
			return "", errors.New("host ends in a number but is not an IPv4 address in its usual form")
		}
	}
	return name, nil
}

// IsIP reports whether a canonical host is an IP literal.
func IsIP(host string) bool {
	if host == "" {
		return false
	}
	if c := host[len(host)-1]; c < '0' || c > '9' {
		return strings.IndexByte(host, ':') >= 0
	}
	if strings.IndexByte(host, ':') >= 0 {
		return true
	}
	return readsAsNumber(host[strings.LastIndexByte(host, '.')+1:])
}

// SplitAuthority reads a Host header or an :authority: a host, and a port
// after a colon where it is not defaultPort. Brackets stand only round an
// IPv6 literal, which has them always. Userinfo, an empty or second port and
// a port that is 0, above 65535 or padded with zeros are refused.
func SplitAuthority(s string, defaultPort uint16) (host string, port uint16, err error) {
	hostText, portText, hasPort := s, "", false
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", 0, errors.New("authority has an opening bracket without its closing one")
		}
		hostText = s[:end+1]
		if rest := s[end+1:]; rest != "" {
			if rest[0] != ':' {
				return "", 0, errors.New("authority goes on after its closing bracket")
			}
			portText, hasPort = rest[1:], true
		}
	} else {
		hostText, portText, hasPort = strings.Cut(s, ":")
	}
	port = defaultPort
	if hasPort {
		if port, err = parsePort(portText); err != nil {
			return "", 0, err
		}
	}
	if host, err = CanonicalHost(hostText); err != nil {
		return "", 0, err
	}
	return host, port, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] < '1' || s[0] > '9' {
		return 0, errors.New("port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

func canonicalIPv6(s string) (string, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return "", errors.New("host has colons or brackets but is not an IPv6 address without zone")
	}
	return a.Unmap().String(), nil
}

// lowerASCII maps a name to lower-case ASCII and says whether it was ASCII.
// It does not check the result.
func lowerASCII(s string) (name string, ascii bool, err error) {
	ascii, upper := true, false
	for i := range len(s) {
		c := s[i]
		upper = upper || 'A' <= c && c <= 'Z'
		ascii = ascii && c < 0x80
	}
	if upper && ascii {
		s = strings.ToLower(s)
	}
	if ascii && !strings.HasPrefix(s, "xn--") && !strings.Contains(s, ".xn--") {
		return s, true, nil
	}
	if !utf8.ValidString(s) {
		return "", false, errors.New("host is not valid UTF-8")
	}
	profile := idnaProfile()
	name, err = profile.ToASCII(s)
	again := name
	if err == nil {
		// The rule for text from right to left is applied to some characters
		// before they are mapped: what a name became has to be valid as well.
		again, err = profile.ToASCII(name)
	}
	if err != nil || again != name {
		return "", false, errors.New("host is not a valid internationalised name")
	}
	return name, ascii, nil
}

// idnaProfile is UTS 46, non-transitional. Hyphens and the ASCII range are
// judged by checkName: names with an underscore and with hyphens in the third
// and fourth place exist.
func idnaProfile() *idna.Profile {
	return idna.New(
		idna.MapForLookup(),
		idna.Transitional(false),
		idna.StrictDomainName(false),
		idna.CheckHyphens(false),
		idna.CheckJoiners(true),
		idna.BidiRule(),
	)
}

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("host is longer than %d bytes", maxName)
	}
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			if c := name[i]; !nameByte(c) {
				return fmt.Errorf("host has the character %q", rune(c))
			}
			continue
		}
		switch {
		case i == start:
			return errors.New("host has an empty label")
		case i-start > maxLabel:
			return fmt.Errorf("host has a label longer than %d bytes", maxLabel)
		case name[start] == '-':
			return errors.New("host has a label that begins with a hyphen")
		}
		start = i + 1
	}
	return nil
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// readsAsNumber reports whether a label is one that libc, curl or a browser
// would read as a part of an IPv4 address: decimal, octal or 0x hexadecimal.
func readsAsNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}
