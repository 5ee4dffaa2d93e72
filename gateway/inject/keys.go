package inject

import "strings"

// keyFormat is a well-known form of a credential: a prefix, and then
// characters of a set, at least so many.
type keyFormat struct {
	name   string
	prefix string
	set    func(byte) bool
	least  int // characters after the prefix
	most   int
	home   []string
}

// keyFormats are formats whose prefix and length make a chance hit unlikely.
// Home are the domains to which such a key may be sent.
func keyFormats() []keyFormat {
	upper := func(b byte) bool { return b >= 'A' && b <= 'Z' || b >= '2' && b <= '7' }
	lowerHex := func(b byte) bool { return b-'0' < 10 || b-'a' < 6 }
	dashed := func(b byte) bool { return word(b) || b == '-' }
	dotted := func(b byte) bool { return dashed(b) || b == '.' }
	github := []string{"github.com", "githubusercontent.com", "ghcr.io", "githubcopilot.com"}
	return []keyFormat{
		{"anthropic_key", "sk-ant-", dashed, 80, 120, []string{"anthropic.com"}},
		{"aws_access_key", "AKIA", upper, 16, 16, []string{"amazonaws.com"}},
		{"aws_session_key", "ASIA", upper, 16, 16, []string{"amazonaws.com"}},
		{"digitalocean_token", "dop_v1_", lowerHex, 64, 64, []string{"digitalocean.com"}},
		{"github_pat", "github_pat_", word, 82, 82, github},
		{"github_token", "ghp_", alnum, 36, 36, github},
		{"github_oauth_token", "gho_", alnum, 36, 36, github},
		{"github_server_token", "ghs_", alnum, 36, 36, github},
		{"gitlab_token", "glpat-", dotted, 20, 60, []string{"gitlab.com"}},
		{"google_api_key", "AIza", dashed, 35, 35, []string{"googleapis.com", "google.com"}},
		{"huggingface_token", "hf_", alnum, 34, 34, []string{"huggingface.co", "hf.co"}},
		{"npm_token", "npm_", alnum, 36, 36, []string{"npmjs.org", "npmjs.com"}},
		{"openai_key", "sk-proj-", dashed, 40, 200, []string{"openai.com"}},
		{"private_key", "-----BEGIN ", func(b byte) bool { return upper(b) || b == ' ' }, 11, 22, nil},
		{"pypi_token", "pypi-AgEIcHlwaS5vcmc", dashed, 50, 1000, []string{"pypi.org"}},
		{"sendgrid_key", "SG.", dotted, 66, 66, []string{"sendgrid.com"}},
		{"slack_token", "xoxb-", dashed, 40, 90, []string{"slack.com"}},
		{"slack_user_token", "xoxp-", dashed, 40, 90, []string{"slack.com"}},
		{"stripe_key", "sk_live_", alnum, 24, 120, []string{"stripe.com"}},
		{"stripe_restricted_key", "rk_live_", alnum, 24, 120, []string{"stripe.com"}},
	}
}

// keys finds credentials of well-known formats.
type keys struct {
	formats []keyFormat
	seek    *seeker // of prefixes
}

func newKeys() keys {
	k := keys{formats: keyFormats()}
	var prefixes []string
	var owner []int
	for i, f := range k.formats {
		prefixes, owner = append(prefixes, f.prefix), append(owner, i)
	}
	k.seek = newSeeker(prefixes, owner)
	return k
}

// known calls found with the name of every key in text that is none of host's
// own, no published example and no placeholder of this gateway.
func (t *Table) known(text, host string, found func(name string)) {
	var ends []int // by format: of the run of its characters that was read last
	each(t.keys.seek, text, func(owner, start, end int) {
		f := &t.keys.formats[owner]
		if start > 0 && word(text[start-1]) {
			return
		}
		if ends == nil {
			ends = make([]int, len(t.keys.formats))
		}
		end = max(end, ends[owner]) // a prefix may stand in the run of another
		for end < len(text) && f.set(text[end]) {
			end++
		}
		ends[owner] = end
		n := end - start - len(f.prefix)
		if n < f.least || n > f.most || end < len(text) && word(text[end]) || at(host, f.home) {
			return
		}
		key := text[start:end]
		if h, ok := t.find.next(key, 0, nil); ok && h.start == 0 || example(key[len(f.prefix):]) {
			return
		}
		if f.name == "private_key" && !strings.HasSuffix(key, "PRIVATE KEY") {
			return
		}
		found(f.name)
	})
}

// at says whether host is one of domains or below one.
func at(host string, domains []string) bool {
	for _, d := range domains {
		if host == d || strings.HasSuffix(host, "."+d) {
			return true
		}
	}
	return false
}

// example says whether what follows a prefix is no real key: documentation
// says so in it, or repeats few characters.
func example(body string) bool {
	folded := strings.ToLower(body)
	for _, text := range []string{"example", "xxxxxx", "000000", "abcdefghij", "1234567890", "your"} {
		if strings.Contains(folded, text) {
			return true
		}
	}
	distinct := 0
	for i := range len(folded) {
		if distinct < 6 && strings.IndexByte(folded[:i], folded[i]) < 0 {
			distinct++
		}
	}
	return distinct < 6
}

// Credentials returns the keys of well-known formats in the target and the
// headers of a request, by the names of their formats and never by their
// text. A key that is sent to its issuer is not one. What is done about them
// is the sandbox's setting. It is a tripwire: what is encoded, or has another
// form, is not found.
func (t *Table) Credentials(in Input) []Use {
	var u uses
	look := func(p place, text string) {
		t.known(text, in.Host, func(name string) {
			u.add(Use{Name: name, Place: p.String(), Action: Withheld})
		})
	}
	r := in.Request
	if r.URL != nil {
		look(place{kind: inPath}, r.URL.Path)
		look(place{kind: inQuery}, unescape(r.URL.RawQuery))
	}
	for name, lines := range r.Header {
		for _, text := range lines {
			look(place{kind: inHeader, header: name}, text)
			if scheme, encoded, ok := isBasic(text); ok {
				if d, ok := decodeBasic(scheme, encoded); ok {
					look(place{kind: inBasic, header: name}, d.user+":"+d.pass)
				}
			}
		}
	}
	return u.sorted()
}
