package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sallyport/secrets"
)

// parse reads a command's output: the value itself with at most one trailing
// newline, or a JSON object {"value": "…"} with, if it likes, "ttl" (seconds,
// or a duration such as "50m") or "expires_at" (RFC 3339, or Unix seconds).
// Output that begins with a brace and is no such object is an error and not a
// value: it is what commands print when they failed. A value that is itself
// JSON goes inside one.
func parse(out []byte, now time.Time) (secrets.Fetched, error) {
	text := bytes.TrimSpace(out)
	if len(text) == 0 || text[0] != '{' {
		v, err := secrets.NewValue(out)
		return secrets.Fetched{Value: v}, err
	}
	var doc struct {
		Value     *string         `json:"value"`
		TTL       json.RawMessage `json:"ttl"`
		ExpiresAt json.RawMessage `json:"expires_at"`
	}
	// encoding/json's errors can quote what they do not like, so none is
	// passed on.
	if json.Unmarshal(text, &doc) != nil || doc.Value == nil {
		return secrets.Fetched{}, errors.New(`output begins with a brace and is no JSON object with a string "value"`)
	}
	v, err := secrets.NewValue([]byte(*doc.Value))
	if err != nil {
		return secrets.Fetched{}, err
	}
	ttl, err := lifetime(doc.TTL, doc.ExpiresAt, now)
	return secrets.Fetched{Value: v, TTL: ttl}, err
}

func lifetime(ttl, expires json.RawMessage, now time.Time) (time.Duration, error) {
	switch {
	case given(ttl) && given(expires):
		return 0, errors.New(`output has both "ttl" and "expires_at"`)
	case given(ttl):
		d, ok := duration(ttl)
		if !ok || d <= 0 {
			return 0, errors.New(`output's "ttl" is not a positive number of seconds or a duration`)
		}
		return d, nil
	case given(expires):
		at, ok := instant(expires)
		if !ok {
			return 0, errors.New(`output's "expires_at" is neither RFC 3339 nor Unix seconds`)
		}
		if !at.After(now) {
			return 0, fmt.Errorf("output expired at %s", at.UTC().Format(time.RFC3339))
		}
		return at.Sub(now), nil
	}
	return 0, nil
}

func given(m json.RawMessage) bool { return len(m) > 0 && string(m) != "null" }

// maxSeconds keeps a number of seconds inside a time.Duration.
const maxSeconds = 100 * 365 * 24 * 3600

func duration(m json.RawMessage) (time.Duration, bool) {
	text := strings.Trim(string(m), `"`)
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(min(s, maxSeconds) * float64(time.Second)), s > 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

func instant(m json.RawMessage) (time.Time, bool) {
	text := strings.Trim(string(m), `"`)
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Unix(int64(min(s, 1<<40)), 0), s > 0
	}
	t, err := time.Parse(time.RFC3339, text)
	return t, err == nil
}
