package inject

import (
	"net/textproto"
	"strings"
)

// CredentialHeaders returns the headers in which a placeholder is replaced
// when a secret names none of its own, and which are foreign credentials when
// they hold something else on a rule that injects. Case does not matter.
func CredentialHeaders() []string {
	return []string{
		"Authorization",
		"Api-Key",                   // Azure OpenAI
		"Api-Token",                 //
		"Apikey",                    //
		"Auth-Token",                //
		"Circle-Token",              // CircleCI
		"Dd-Api-Key",                // Datadog
		"Dd-Application-Key",        // Datadog
		"Deploy-Token",              // GitLab
		"Fastly-Key",                // Fastly
		"Job-Token",                 // GitLab
		"Ocp-Apim-Subscription-Key", // Azure
		"Private-Token",             // GitLab
		"X-Access-Token",            //
		"X-Api-Key",                 // Anthropic and many more
		"X-Api-Token",               //
		"X-Auth-Key",                // Cloudflare
		"X-Auth-Token",              // OpenStack
		"X-Figma-Token",             // Figma
		"X-Functions-Key",           // Azure Functions
		"X-Goog-Api-Key",            // Google
		"X-Honeycomb-Team",          // Honeycomb
		"X-Mbx-Apikey",              // Binance
		"X-Postmark-Account-Token",  // Postmark
		"X-Postmark-Server-Token",   // Postmark
		"X-Rapidapi-Key",            // RapidAPI
		"X-Redmine-Api-Key",         // Redmine
		"X-Shopify-Access-Token",    // Shopify
		"X-Subscription-Token",      // Brave
		"X-Token",                   //
		"X-Vault-Token",             // Vault
		"Xi-Api-Key",                // ElevenLabs
	}
}

// never says whether a header is no place of a secret even if it is named:
// those that route, frame or end at the gateway.
func never(canonical string) bool {
	switch canonical {
	case "Host", "Proxy-Authorization", "Connection", "Content-Length", "Te",
		"Trailer", "Transfer-Encoding", "Upgrade", "User-Agent":
		return true
	}
	return strings.HasPrefix(canonical, ":")
}

// several says whether the value of a credential header carries more than
// one credential, as "Bearer a, Bearer b" does. Schemes with parameters, such
// as Digest, separate those by commas; so does Token, whose first is then the
// token, and the others only describe it.
func (s *scan) several(header, value string) bool {
	if strings.IndexByte(value, ',') < 0 {
		return false
	}
	if header != "Authorization" {
		return true
	}
	scheme := strings.Fields(value)[0]
	if !strings.EqualFold(scheme, "Token") {
		return simple(scheme)
	}
	rest := strings.TrimLeft(strings.Trim(s.marked(value), " \t")[len(scheme):], " \t")
	return !strings.HasPrefix(rest, "token=") || !parameters(rest)
}

// dashed is the name of a header as a server may read it that knows fields by
// the names of variables, as CGI has them (RFC 3875, section 4.1.18): every
// character but letters and digits as a dash. It is canonical.
func dashed(name string) string {
	odd := func(r rune) bool { return r != '-' && (r > 0x7f || !alnum(byte(r))) }
	if strings.IndexFunc(name, odd) < 0 {
		return name
	}
	return textproto.CanonicalMIMEHeaderKey(strings.Map(func(r rune) rune {
		if odd(r) {
			return '-'
		}
		return r
	}, name))
}
