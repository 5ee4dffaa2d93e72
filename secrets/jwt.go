package secrets

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// RSAKey reads a private key of RSA in PEM, as PKCS #1 or PKCS #8. Its errors
// quote nothing.
func RSAKey(b []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("holds no PEM block")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("holds no private key")
	}
	key, ok := any.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("holds a key that is not of RSA")
	}
	return key, nil
}

// SignJWT makes a token (RFC 7519) that is signed with RS256. keyID goes into
// the header unless it is "".
func SignJWT(key *rsa.PrivateKey, keyID string, claims map[string]any) (string, error) {
	head := map[string]string{"alg": "RS256", "typ": "JWT"}
	if keyID != "" {
		head["kid"] = keyID
	}
	text := ""
	for i, part := range []any{head, claims} {
		b, err := json.Marshal(part)
		if err != nil {
			return "", fmt.Errorf("token: %w", err)
		}
		if i > 0 {
			text += "."
		}
		text += base64.RawURLEncoding.EncodeToString(b)
	}
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}
