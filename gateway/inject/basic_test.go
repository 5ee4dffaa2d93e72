package inject

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"sallyport/policy"
)

func TestSEC03Basic(t *testing.T) {
	table := testTable()
	gh := table.Placeholder("s1", "GH_TOKEN")
	for name, tt := range map[string]struct{ header, user, pass string }{
		"password":          {"Basic eC1hY2Nlc3MtdG9rZW46JEFQSV9LRVk=", "x-access-token", realAPI},
		"user, no password": {"Basic JEFQSV9LRVk6", realAPI, ""},
		"both":              {basicOf("$API_KEY_2:$API_KEY"), "REAL-second", realAPI},
		"shaped":            {basicOf("x-access-token:" + gh), "x-access-token", realGH},
		"braced":            {basicOf("u:${API_KEY}"), "u", realAPI},
		"colon in password": {basicOf("u:a:$API_KEY"), "u", "a:" + realAPI},
	} {
		t.Run(name, func(t *testing.T) {
			reason, out := outcome(t, table, input(request("GET", "https://good.test/r.git/info/refs?service=git-upload-pack", "Authorization: "+tt.header), allNames...))
			if reason != "" {
				t.Fatal(reason)
			}
			user, pass, ok := (&http.Request{Header: out}).BasicAuth()
			if !ok || user != tt.user || pass != tt.pass || len(out["Authorization"]) != 1 {
				t.Errorf("%q: %q %q", out["Authorization"], user, pass)
			}
		})
	}
	t.Run("git asks without a credential first", func(t *testing.T) {
		reason, out := outcome(t, table, input(request("GET", "https://good.test/r.git/info/refs?service=git-upload-pack"), allNames...))
		if reason != "" || len(out) != 0 {
			t.Errorf("%q %v", reason, out)
		}
	})
}

func TestSEC04BasicForms(t *testing.T) {
	table := testTable()
	enc := base64.StdEncoding.EncodeToString
	for name, header := range map[string]string{
		"lower case":      "basic " + enc([]byte("u:$API_KEY")),
		"spaces":          "Basic    " + enc([]byte("u:$API_KEY")) + "  ",
		"tab":             "Basic\t" + enc([]byte("u:$API_KEY")),
		"no padding":      "Basic " + strings.TrimRight(enc([]byte("u:$API_KEY")), "="),
		"too much":        "Basic " + enc([]byte("u:$API_KEY")) + "==",
		"url alphabet":    "Basic " + base64.URLEncoding.EncodeToString([]byte("u\xff\xfe:$API_KEY")),
		"letter case odd": "bAsIc " + enc([]byte("u:$API_KEY")),
	} {
		t.Run(name, func(t *testing.T) {
			reason, out := outcome(t, table, input(request("GET", "https://good.test/", "Authorization: "+header), allNames...))
			_, pass, ok := (&http.Request{Header: out}).BasicAuth()
			if reason != "" || !ok || pass != realAPI {
				t.Errorf("%q %q", reason, out["Authorization"])
			}
			reason, _ = outcome(t, table, input(request("GET", "https://other.test/", "Authorization: "+header), allNames...))
			if reason != policy.PlaceholderLeak {
				t.Errorf("elsewhere: reason %q", reason)
			}
		})
	}
	good := enc([]byte("user:$API_KEY and more text"))
	for name, header := range map[string]string{
		"garbage behind": "Basic " + good + "!!!",
		"garbage before": "Basic !" + good,
		"garbage inside": "Basic " + good[:7] + "*" + good[7:],
		"shifted by one": "Basic A!" + good,
		"shifted by two": "Basic AA!" + good,
	} {
		t.Run(name, func(t *testing.T) {
			reason, _ := outcome(t, table, input(request("GET", "https://good.test/", "Authorization: "+header), allNames...))
			if reason != policy.PlaceholderPlace {
				t.Errorf("reason %q", reason)
			}
		})
	}
	t.Run("undecodable without a placeholder is left alone", func(t *testing.T) {
		reason, out := outcome(t, table, input(request("GET", "https://other.test/", "Authorization: Basic %%%"), allNames...))
		if reason != "" || out.Get("Authorization") != "Basic %%%" {
			t.Errorf("%q %q", reason, out)
		}
	})
	t.Run("value with a colon or beyond ASCII", func(t *testing.T) {
		values := testValues(t)
		values["API_KEY"] = mustValue(t, "a:b:é")
		r := request("GET", "https://good.test/", "Authorization: "+basicOf("u:$API_KEY"))
		p, _ := table.Plan(input(r, allNames...))
		if err := p.Apply(r, values); err != nil {
			t.Fatal(err)
		}
		if _, pass, _ := r.BasicAuth(); pass != "a:b:é" {
			t.Errorf("password %q", pass)
		}
		r = request("GET", "https://good.test/", "Authorization: "+basicOf("$API_KEY:"))
		p, _ = table.Plan(input(r, allNames...))
		if err := p.Apply(r, values); err == nil || strings.Contains(err.Error(), "a:b") {
			t.Errorf("a colon in the user: error %v", err)
		}
	})
}

func FuzzBasic(f *testing.F) {
	for _, s := range []string{
		"Basic eC1hY2Nlc3MtdG9rZW46JEFQSV9LRVk=", "Basic JEFQSV9LRVk6", "basic  !!", "Basic", "Basic ", "Basic A", "Basic -_-_", "Basic ====", "Basic Og==",
	} {
		f.Add(s)
	}
	table := testTable()
	f.Fuzz(func(t *testing.T, value string) {
		scheme, encoded, ok := isBasic(value)
		if !ok {
			return
		}
		d, decoded := decodeBasic(scheme, encoded)
		for _, text := range alignments(encoded) {
			if len(text) > len(encoded) {
				t.Fatalf("%q decodes to more than it is", encoded)
			}
		}
		if decoded {
			scheme, encoded, ok := isBasic(d.String())
			again, same := decodeBasic(scheme, encoded)
			// A separator at the end of what is encoded is not lost.
			if !ok && d.user+d.pass != "" || ok && (!same || again != d) {
				t.Fatalf("%q: %+v became %+v", value, d, again)
			}
		}
		// The same text must not pass to a host that is approved for nothing
		// when a server that decodes it strictly would see a placeholder.
		r := &http.Request{Header: http.Header{"Authorization": {value}}}
		_, refusal := table.Plan(Input{Sandbox: "s1", Request: r, Host: "other.test", Scheme: policy.HTTPS, Intercepted: true, Decision: policy.Decision{Verdict: policy.Allow}})
		user, pass, seen := r.BasicAuth()
		_, inUser := table.find.next(user, 0, nil)
		_, inPass := table.find.next(pass, 0, nil)
		if seen && (inUser || inPass) && refusal == nil {
			t.Fatalf("%q passed", value)
		}
	})
}
