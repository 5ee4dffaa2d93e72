// Package secrets holds the real credentials: values that cannot be printed,
// the sources they come from, and the store that keeps them fresh.
package secrets

import (
	"errors"
	"fmt"
	"log/slog"
)

// Value is a secret. It holds a closure and not bytes, because fmt prints
// the bytes of another struct's unexported field whatever Format method they
// have. Every way of printing, encoding or logging a Value gives "[secret]".
// The zero Value holds nothing.
type Value struct {
	reveal func() string
	parts  func() []Value // nil: it is one
}

// MaxValue is the longest value that a source may give, in bytes.
const MaxValue = 64 << 10

const redacted = "[secret]"

// NewValue makes a Value of what a source gave. One trailing newline is
// dropped. An empty value, one with a control character or a byte order
// mark, or one over MaxValue is an error that does not quote it.
func NewValue(b []byte) (Value, error) {
	s := string(b)
	if n := len(s); n > 0 && s[n-1] == '\n' {
		s = s[:n-1]
		if n := len(s); n > 0 && s[n-1] == '\r' {
			s = s[:n-1]
		}
	}
	switch {
	case s == "":
		return Value{}, errors.New("value is empty")
	case len(s) > MaxValue:
		return Value{}, fmt.Errorf("value is longer than %d bytes", MaxValue)
	case len(s) >= 3 && s[:3] == "\xef\xbb\xbf":
		return Value{}, errors.New("value begins with a byte order mark")
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return Value{}, fmt.Errorf("value has a control character (0x%02x) at byte %d", s[i], i)
		}
	}
	return Value{reveal: func() string { return s }}, nil
}

// Reveal returns the secret itself. Only gateway/inject and this package call
// it; a test of the project holds that.
func (v Value) Reveal() string {
	if v.reveal == nil {
		return ""
	}
	return v.reveal()
}

// IsZero says whether v holds nothing.
func (v Value) IsZero() bool { return v.reveal == nil }

// String returns "[secret]".
func (v Value) String() string { return redacted }

// GoString returns "[secret]".
func (v Value) GoString() string { return redacted }

// Format writes "[secret]" for every verb.
func (v Value) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// MarshalText returns "[secret]".
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[secret]".
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }
