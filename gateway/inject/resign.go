package inject

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sallyport/policy"
)

// Signing says what a secret signs. Such a secret holds AWS credentials and
// is never sent: a request that is signed with its placeholder as the key ID
// (Signature Version 4) is signed anew.
type Signing struct {
	Services []string // of the scope, such as "s3"; empty: any
	Regions  []string // likewise
}

func (s *Signing) permits(service, region string) bool {
	in := func(list []string, x string) bool { return len(list) == 0 || slices.Contains(list, x) }
	return in(s.Services, service) && in(s.Regions, region)
}

const (
	sigV4        = "AWS4-HMAC-SHA256"
	sigV4a       = "AWS4-ECDSA-P256-SHA256"
	unsigned     = "UNSIGNED-PAYLOAD"
	unsignedTail = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedChunks = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTail   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

// Parameters of a signature in the query.
const (
	paramAlgorithm  = "X-Amz-Algorithm"
	paramCredential = "X-Amz-Credential"
	paramSigned     = "X-Amz-SignedHeaders"
	paramSignature  = "X-Amz-Signature"
	paramToken      = "X-Amz-Security-Token"
)

// signature is a signature that was made with a placeholder, and is made
// anew.
type signature struct {
	cred    *credential
	query   bool // it stands in the query, else in Authorization
	service string
	region  string
	signed  []string // names of the headers that it covers, lower case
	payload string   // of X-Amz-Content-Sha256; "": the header is absent
}

// mayStand says whether the key ID of a signature may stand in a place.
func (s *Signing) mayStand(p place) bool {
	return p.kind == inHeader && p.header == "Authorization" || p.kind == inQuery && p.header == paramCredential
}

// signature finds the signature that is made anew, of which the scan has
// found the placeholder.
func (s *scan) signature(r *http.Request) {
	var cred *credential
	for _, n := range s.names {
		if c := s.t.creds[n]; c.sign != nil {
			if cred != nil && cred != c {
				s.refuse(policy.PlaceholderPlace, "the request is signed with two secrets")
				return
			}
			cred = c
		}
	}
	if cred == nil {
		return
	}
	sig, problem := s.readSignature(cred, r)
	if problem == "" && !cred.sign.permits(sig.service, sig.region) {
		problem = "is not for the service and region of the signature"
	}
	if problem != "" {
		s.uses.add(Use{Name: cred.name, Place: "signature", Action: Withheld})
		s.refuse(policy.PlaceholderPlace, cred.name+" "+problem)
		return
	}
	s.resigned = sig
}

// readSignature reads the signature of a request. The problem, if any, goes
// on behind the name of the secret.
func (s *scan) readSignature(c *credential, r *http.Request) (*signature, string) {
	sig := &signature{cred: c, payload: strings.Join(r.Header["X-Amz-Content-Sha256"], ",")}
	var scope, signed string
	lines, q := r.Header["Authorization"], url.Values{}
	if r.URL != nil {
		var err error
		if q, err = url.ParseQuery(r.URL.RawQuery); err != nil {
			return nil, "cannot sign a query that is no list of parameters"
		}
	}
	switch {
	case len(lines) == 1 && len(q[paramSignature])+len(q[paramCredential]) > 0, len(lines) > 1:
		return nil, "would sign a request that has two signatures"
	case len(lines) == 1:
		fields, ok := strings.CutPrefix(lines[0], sigV4+" ")
		if !ok {
			return nil, unsigned4(lines[0])
		}
		parts := map[string]string{}
		for f := range strings.SplitSeq(fields, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(f), "=")
			parts[name] = value
		}
		scope, signed = parts["Credential"], parts["SignedHeaders"]
	case len(q[paramAlgorithm]) == 1 && q.Get(paramAlgorithm) == sigV4 && len(q[paramCredential]) == 1 && len(q[paramSigned]) == 1 && len(q[paramSignature]) == 1:
		sig.query, scope, signed = true, q.Get(paramCredential), q.Get(paramSigned)
	default:
		return nil, unsigned4(q.Get(paramAlgorithm))
	}
	for name := range q {
		own := sig.query && slices.Contains([]string{paramCredential, paramSignature, paramToken}, name)
		if signsAlone(strings.ToLower(name)) && !own {
			return nil, "would sign a request that has two signatures"
		}
	}
	// The key ID, the date, the region, the service and "aws4_request".
	f := strings.Split(scope, "/")
	h, ok := s.t.find.next(f[0], 0, s.own)
	if len(f) != 5 || f[4] != "aws4_request" || !ok || h.cred != c || h.start != 0 || h.end != len(f[0]) || f[2] == "" || f[3] == "" {
		return nil, "stands in a signature whose scope cannot be read"
	}
	sig.region, sig.service = f[2], f[3]
	for name := range strings.SplitSeq(signed, ";") {
		if name == "" || name != strings.ToLower(name) {
			return nil, "stands in a signature whose headers cannot be read"
		}
		sig.signed = append(sig.signed, name)
	}
	if !knownPayload(sig.payload) {
		return nil, "stands in a signature of a payload that cannot be signed anew"
	}
	return sig, ""
}

// unsigned4 says why a request in which a key ID stands is not signed anew.
func unsigned4(algorithm string) string {
	if strings.HasPrefix(algorithm, sigV4a) {
		return "cannot sign with " + sigV4a + " (Signature Version 4A, for several regions), only with " + sigV4 + " for one"
	}
	return "is a key ID, for requests that are signed with " + sigV4
}

// knownPayload says whether a payload of this kind can be signed.
func knownPayload(p string) bool {
	switch p {
	case "", unsigned, unsignedTail, signedChunks, signedTail:
		return true
	}
	return isDigest(p)
}

// isDigest says whether s is a SHA-256 sum in hexadecimal.
func isDigest(s string) bool {
	for i := range len(s) {
		if unhex(s[i]) > 15 {
			return false
		}
	}
	return len(s) == 64
}
