package secrets

import (
	"errors"
	"strings"
)

// Compound makes a Value of a name that is no secret and of values that are,
// such as an AWS key ID with its key and session token. Reveal gives all of
// them, joined by colons; Parts gives the values alone. None may hold a colon
// or be empty.
func Compound(name string, hidden ...string) (Value, error) {
	var parts []Value
	for _, text := range append([]string{name}, hidden...) {
		if strings.Contains(text, ":") {
			return Value{}, errors.New("value has a colon")
		}
		v, err := NewValue([]byte(text))
		if err != nil {
			return Value{}, err
		}
		parts = append(parts, v)
	}
	whole := strings.Join(append([]string{name}, hidden...), ":")
	return Value{reveal: func() string { return whole }, parts: func() []Value { return parts[1:] }}, nil
}

// Parts returns the values that must not be seen: v itself, or those of which
// it is made.
func (v Value) Parts() []Value {
	if v.parts == nil {
		return []Value{v}
	}
	return v.parts()
}

// Blob makes a Value of bytes that have lines or are no text, such as a
// private key. Reveal gives them as they are; they can stand in no request.
func Blob(b []byte, hidden ...string) (Value, error) {
	if len(b) == 0 || len(b) > MaxValue {
		return Value{}, errors.New("value is empty or too long")
	}
	var parts []Value
	for _, text := range hidden {
		v, err := NewValue([]byte(text))
		if err != nil {
			return Value{}, err
		}
		parts = append(parts, v)
	}
	whole := string(b)
	return Value{reveal: func() string { return whole }, parts: func() []Value { return parts }}, nil
}
