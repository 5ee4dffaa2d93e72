package inject

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"sallyport/policy"
	"sallyport/secrets"
)

// TokenEndpoint returns the secret whose token a request asks for: one that is
// approved for the request, and whose source takes its tokens from where the
// request goes. The gateway answers such a request itself, with the
// placeholder of the token that it takes there in the sandbox's stead.
func (t *Table) TokenEndpoint(in Input) (name string, ok bool) {
	if in.Request.Method != http.MethodPost {
		return "", false
	}
	s := scan{t: t, in: in}
	s.injects = s.bound()
	return s.tokenEndpoint()
}

// tokenEndpoint returns the secret whose token endpoint the request goes to,
// whatever its method.
func (s *scan) tokenEndpoint() (name string, ok bool) {
	u := s.in.Request.URL
	if u == nil {
		return "", false
	}
	for _, n := range s.in.Decision.Inject {
		c := s.t.creds[n]
		if c == nil || c.token == nil || !s.approved(c) || c.token.Hostname() != s.in.Host {
			continue
		}
		if strings.EqualFold(cleaned(c.token.Path), cleaned(u.Path)) || u.Opaque != "" && strings.EqualFold(cleaned(c.token.Path), cleaned(unescape(u.Opaque))) {
			return n, true
		}
	}
	return "", false
}

// tokenMethod refuses a token endpoint that is not asked for a token: what is
// sent to it does not leave, and of the answers there is only the one.
func (s *scan) tokenMethod() {
	if s.in.Request.Method == http.MethodPost {
		return
	}
	if n, ok := s.tokenEndpoint(); ok {
		s.refuse(policy.MethodNotAllowed, "this is where the gateway takes the tokens of "+n+"; a POST is answered with its placeholder, and nothing else is sent there")
	}
}

// cleaned returns a path that was decoded as servers may read it: without
// what is behind semicolons, dot segments and slashes that are too many, and
// decoded once more.
func cleaned(p string) string {
	segments := strings.Split(strings.ReplaceAll(unescape(p), `\`, "/"), "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return path.Clean("/" + strings.Join(segments, "/"))
}

// endpoint reads the address of a token endpoint; nil for none.
func endpoint(text string) *url.URL {
	u, err := url.Parse(text)
	if text == "" || err != nil {
		return nil
	}
	host, err := policy.CanonicalHost(u.Hostname())
	if err != nil {
		return nil
	}
	u.Host = host
	return u
}

// certificate finds the secret that is the client's certificate towards the
// upstream.
func (s *scan) certificate() {
	for _, n := range s.in.Decision.Inject {
		c := s.t.creds[n]
		if c == nil || !c.certificate || !s.approved(c) {
			continue
		}
		if s.client != "" {
			s.refuse(policy.PlaceholderPlace, "the rule gives the request two client certificates")
			return
		}
		s.client = n
		s.names = append(s.names, n)
		s.uses.add(Use{Name: n, Place: "client certificate", Action: Injected})
	}
}

// ClientCertificate returns the certificate with which the gateway shows
// itself to the upstream; nil for none.
func (p *Plan) ClientCertificate(values map[string]secrets.Value) (*tls.Certificate, error) {
	if p.client == "" {
		return nil, nil
	}
	v, err := reveal(p.client, values)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(v), []byte(v))
	if err != nil {
		return nil, fmt.Errorf("secret %q: is no certificate with its key", p.client)
	}
	return &pair, nil
}

// sendable says whether a credential can stand in a request as text.
func (c *credential) sendable() bool { return c.sign == nil && !c.certificate }

// useful returns the secrets whose placeholders a sandbox has use for.
func (t *Table) useful(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { c := t.creds[n]; return c == nil || c.certificate })
}
