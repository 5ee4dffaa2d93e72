//go:build linux

package secrets_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// awsKeys are what an upstream knows of a client.
type awsKeys struct{ id, key, token string }

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func hmacOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// signing is a signature as an upstream reads it.
type signing struct {
	scope, date, signature string
	key                    []byte
}

// verify says whether a request carries a signature of keys, as the
// reference of Signature Version 4 has it; it shares nothing with the gateway.
func (k awsKeys) verify(r *http.Request, body []byte) error {
	q := r.URL.Query()
	var credential, signed, signature, date, token string
	if presigned := q.Get("X-Amz-Signature"); presigned != "" {
		credential, signed, signature, date, token = q.Get("X-Amz-Credential"), q.Get("X-Amz-SignedHeaders"), presigned, q.Get("X-Amz-Date"), q.Get("X-Amz-Security-Token")
		if r.Header.Get("Authorization") != "" {
			return fmt.Errorf("two signatures")
		}
	} else {
		parts := map[string]string{}
		for p := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			parts[name] = value
		}
		credential, signed, signature, date, token = parts["Credential"], parts["SignedHeaders"], parts["Signature"], r.Header.Get("X-Amz-Date"), r.Header.Get("X-Amz-Security-Token")
	}
	id, scope, _ := strings.Cut(credential, "/")
	f := strings.Split(scope, "/")
	if id != k.id || len(f) != 4 || token != k.token {
		return fmt.Errorf("credential %q, token %q", credential, token)
	}
	key := []byte("AWS4" + k.key)
	for _, part := range f {
		key = hmacOf(key, part)
	}
	canonical := strings.Join([]string{r.Method, canonicalPath(r, f[2]), canonicalQuery(q), canonicalHeaders(r, signed), signed, payloadOf(r, body, f[2])}, "\n")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", date, scope, sum([]byte(canonical))}, "\n")
	if want := hex.EncodeToString(hmacOf(key, text)); want != signature {
		return fmt.Errorf("signature %s, want %s of\n%s", signature, want, canonical)
	}
	if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-AWS4-HMAC-SHA256-PAYLOAD") {
		return signing{scope, date, signature, key}.chunks(body)
	}
	return nil
}

func canonicalPath(r *http.Request, service string) string {
	path := r.URL.EscapedPath()
	if service == "s3" {
		return path
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = escaped(parts[i])
	}
	return strings.Join(parts, "/")
}

func canonicalQuery(q url.Values) string {
	var list []string
	for name, values := range q {
		for _, v := range values {
			if name != "X-Amz-Signature" {
				list = append(list, escaped(name)+"="+escaped(v))
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, "&")
}

func canonicalHeaders(r *http.Request, signed string) string {
	var b strings.Builder
	for name := range strings.SplitSeq(signed, ";") {
		value := strings.Join(r.Header[http.CanonicalHeaderKey(name)], ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	return b.String()
}

func payloadOf(r *http.Request, body []byte, service string) string {
	if h := r.Header.Get("X-Amz-Content-Sha256"); h != "" {
		return h
	}
	if r.URL.Query().Get("X-Amz-Signature") != "" && service == "s3" {
		return "UNSIGNED-PAYLOAD"
	}
	return sum(body)
}

// chunks verifies a body in signed chunks.
func (s signing) chunks(body []byte) error {
	last := s.signature
	for {
		head, rest, ok := bytes.Cut(body, []byte("\r\n"))
		size, signature, ok2 := strings.Cut(string(head), ";chunk-signature=")
		n, err := strconv.ParseInt(size, 16, 64)
		if !ok || !ok2 || err != nil || int64(len(rest)) < n+2 {
			return fmt.Errorf("chunk %.80q", head)
		}
		last = hex.EncodeToString(hmacOf(s.key, strings.Join([]string{"AWS4-HMAC-SHA256-PAYLOAD", s.date, s.scope, last, sum(nil), sum(rest[:n])}, "\n")))
		if last != signature {
			return fmt.Errorf("chunk of %d bytes: signature %s, want %s", n, signature, last)
		}
		body = rest[n+2:]
		if n == 0 {
			return nil
		}
	}
}

// awsOrigin answers requests that are signed with keys, and 403 otherwise.
func (k awsKeys) origin(answer func(w http.ResponseWriter, r *http.Request, body []byte), bad func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = k.verify(r, body)
		}
		if err != nil {
			bad(fmt.Errorf("%s %s: %w", r.Method, r.URL, err))
			http.Error(w, "SignatureDoesNotMatch", http.StatusForbidden)
			return
		}
		answer(w, r, body)
	})
}
