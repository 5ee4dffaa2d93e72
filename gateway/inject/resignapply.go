package inject

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"sallyport/policy"
	"sallyport/secrets"
)

// maxSigned is the most of a body that is held to be signed, in bytes.
const maxSigned = 8 << 20

// amzTime is the form of a time in a signature.
const amzTime = "20060102T150405Z"

// apply signs out with the real credentials, at the time now. Of the
// signature as it came only what it covers is kept.
func (s *signature) apply(p *Plan, out *http.Request, values map[string]secrets.Value, now time.Time) error {
	creds, err := s.credentials(values)
	if err != nil {
		return err
	}
	if out.URL == nil {
		return errChanged
	}
	payload, err := s.digest(p, out)
	if err != nil {
		return err
	}
	// What is signed is what the sandbox signed, so that fields which change
	// on the way do not break it.
	signed := &http.Request{Method: out.Method, Host: out.Host, URL: new(*out.URL), Header: http.Header{}}
	signed.URL.User = nil
	for _, name := range s.signed {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if v, ok := out.Header[name]; ok && name != "X-Amz-Security-Token" {
			signed.Header[name] = slices.Clone(v)
		}
	}
	if slices.Contains(s.signed, "content-length") {
		signed.ContentLength = out.ContentLength
	}
	plain := func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = strings.HasPrefix(s.service, "s3") // S3 alone takes a path as it is
		o.DisableHeaderHoisting = true
	}
	out.Header.Del(paramToken)
	if s.query {
		if err := s.presign(out, signed, creds, payload, now, plain); err != nil {
			return err
		}
		return s.made(p, out.URL.Query().Get(paramSignature))
	}
	if err := v4.NewSigner().SignHTTP(out.Context(), creds, signed, payload, s.service, s.region, now, plain); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	out.Host = signed.Host
	for _, name := range []string{"Authorization", "X-Amz-Date", paramToken} {
		if v, ok := signed.Header[name]; ok {
			out.Header[name] = v
		}
	}
	_, text, _ := strings.Cut(out.Header.Get("Authorization"), "Signature=")
	if err := s.made(p, text); err != nil {
		return err
	}
	if s.payload == signedChunks || s.payload == signedTail {
		return s.stream(out, creds, now)
	}
	return nil
}

// presign puts the signature into the query.
func (s *signature) presign(out, signed *http.Request, creds aws.Credentials, payload string, now time.Time, options func(*v4.SignerOptions)) error {
	q, err := url.ParseQuery(signed.URL.RawQuery)
	if err != nil {
		return errChanged
	}
	for _, name := range []string{paramAlgorithm, paramCredential, paramSigned, paramSignature, paramToken, "X-Amz-Date"} {
		q.Del(name)
	}
	signed.URL.RawQuery = q.Encode()
	target, _, err := v4.NewSigner().PresignHTTP(out.Context(), creds, signed, payload, s.service, s.region, now, options)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	_, query, ok := strings.Cut(target, "?")
	if !ok {
		return errors.New("sign: no signature")
	}
	out.URL.RawQuery = query
	return nil
}

// made keeps the signature that leaves. Who has it could send the request once
// more past the gateway, so that it is covered in the answer as the key is.
func (s *signature) made(p *Plan, text string) error {
	v, err := secrets.NewValue([]byte(text))
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	p.made = []secrets.Held{{Name: s.cred.name, Value: v}}
	return nil
}

func (s *signature) credentials(values map[string]secrets.Value) (aws.Credentials, error) {
	v, err := reveal(s.cred.name, values)
	if err != nil {
		return aws.Credentials{}, err
	}
	parts := strings.Split(v, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return aws.Credentials{}, fmt.Errorf("secret %q: holds no AWS credentials", s.cred.name)
	}
	c := aws.Credentials{AccessKeyID: parts[0], SecretAccessKey: parts[1]}
	if len(parts) == 3 {
		c.SessionToken = parts[2]
	}
	return c, nil
}

// digest returns what the signature says of the body: what the sandbox said,
// or its sum, for which it is read.
func (s *signature) digest(p *Plan, out *http.Request) (string, error) {
	switch {
	case s.payload != "":
		return s.payload, nil
	case s.query && strings.HasPrefix(s.service, "s3"):
		return unsigned, nil
	}
	var body []byte
	if out.Body != nil && out.Body != http.NoBody {
		var err error
		if body, err = p.readHeld(out.Body, maxSigned+1); err != nil {
			return "", err
		}
		if len(body) > maxSigned {
			return "", &Refusal{Reason: policy.BodyTooLarge, Message: "the body is larger than the gateway holds of one that it signs"}
		}
		if err := out.Body.Close(); err != nil {
			return "", err
		}
		if out.ContentLength >= 0 || len(body) > 0 {
			out.ContentLength = int64(len(body))
		}
		out.Body = io.NopCloser(bytes.NewReader(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}
