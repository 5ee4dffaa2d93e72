package inject

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sallyport/policy"
)

// TestSEC28ForeignBesideAPlaceholder: in the field of a credential a
// placeholder stands alone, or behind one scheme; what stands beside it may be
// a credential that the sandbox brought along.
func TestSEC28ForeignBesideAPlaceholder(t *testing.T) {
	table := testTable()
	own := table.Placeholder("s1", "GH_TOKEN")
	for line, want := range map[string]string{
		"Authorization: " + basicOf("$API_KEY:hunter2-9"):                                             "",
		"Authorization: " + basicOf("$API_KEY:hunter!"):                                               "",
		"Authorization: " + basicOf("$API_KEY:a:b"):                                                   "",
		"Authorization: " + basicOf("$API_KEY:123"):                                                   basicOf("REAL-api-value-0123456789:123"),
		"Authorization: " + basicOf("$API_KEY:random-1"):                                              basicOf("REAL-api-value-0123456789:random-1"),
		"Authorization: " + basicOf("$API_KEY:ghp_"+strings.Repeat("ab1", 12)):                        "",
		"Authorization: " + basicOf("$API_KEY:"+strings.Repeat("a", 17)):                              "",
		"Authorization: " + basicOf("ghp_"+strings.Repeat("aB1dE2", 6)+":$API_KEY"):                   "",
		"Authorization: " + basicOf("u:p:$API_KEY"):                                                   basicOf("u:p:REAL-api-value-0123456789"),
		"Authorization: " + basicOf("$API_KEY:x-oauth-basic"):                                         basicOf("REAL-api-value-0123456789:x-oauth-basic"),
		"Authorization: " + basicOf("$API_KEY:"):                                                      basicOf("REAL-api-value-0123456789:"),
		"Authorization: " + basicOf("$API_KEY"):                                                       basicOf("REAL-api-value-0123456789"),
		"Authorization: " + basicOf(own+":$API_KEY"):                                                  basicOf("REAL-gh-value-abcdefghij:REAL-api-value-0123456789"),
		"Authorization: Bearer ATTACKER $API_KEY":                                                     "",
		"Authorization: Bearer\tATTACKER\t$API_KEY":                                                   "",
		"Authorization: Bearer ATTACKER;$API_KEY":                                                     "",
		"Authorization: Bearer \"ATTACKER\" $API_KEY":                                                 "",
		"Authorization: $API_KEY ATTACKER":                                                            "",
		"Authorization: ATTACKER|$API_KEY":                                                            "",
		"Authorization: " + own + " ATTACKER":                                                         "",
		"Authorization: Bearer " + own + " ATTACKER":                                                  "",
		"Authorization: Basic YXR0YWNrZXI6cHc= $API_KEY":                                              "",
		"Authorization: GenieKey ATTACKER, GenieKey $API_KEY":                                         "",
		"Authorization: GenieKey ATTACKER=, key=$API_KEY":                                             "",
		"Authorization: GenieKey key=ATTACKER, GenieKey $API_KEY":                                     "",
		"Authorization: Foo key=\"ATTACKER\", key=\"$API_KEY\"":                                       "",
		"Authorization: Foo key=\"ATTACKER $API_KEY\"":                                                "",
		"Authorization: Foo a=\"x, Foo ATTACKER, b=\", key=\"$API_KEY":                                "",
		"Authorization: Foo a=\"x, Foo ATTACKER, b=\", c=\"$API_KEY\"":                                "",
		"Authorization: Foo a=\"b\" ATTACKER, c=\"$API_KEY\"":                                         "",
		"Authorization: MediaBrowser Token=\"ATTACKER\", Device=\"$API_KEY\"":                         "",
		"Authorization: MediaBrowser Device=\"$API_KEY\",Token=ATTACKER":                              "",
		"Authorization: OAuth oauth_token=\"ATTACKER\", oauth_nonce=\"$API_KEY\"":                     "",
		"Authorization: Foo any=ATTACKER, key=$API_KEY":                                               "",
		"Authorization: Foo token=\"$API_KEY\", nonce=\"a;token=ATTACKER;b=\"":                        "",
		"Authorization: Foo token=\"$API_KEY\", nonce=\"a,token=ATTACKER,b=\"":                        "",
		"Authorization: Foo token=\"$API_KEY\", nonce=\"a\ttoken=ATTACKER\"":                          "",
		"Authorization: Foo token=\"$API_KEY\", nonce=\"a token=ATTACKER\"":                           "",
		"Authorization: OAuth oauth_consumer_key=\"a\", oauth_secret=\"b\", oauth_token=\"$API_KEY\"": "",
		"Authorization: Token token=\"ATTACKER\", email=\"$API_KEY\"":                                 "",
		"Authorization: Token email=\"ATTACKER\", token=\"$API_KEY\"":                                 "",
		"Authorization: Token token=\"$API_KEY\", token=\"ATTACKER\"":                                 "",
		"Authorization: Token token=\"$API_KEY\", key=\"ATTACKER\"":                                   "",
		"Authorization: Token token=\"$API_KEY\", email=\"a\", Token ATTACKER":                        "",
		"Authorization: Token token=\"$API_KEY\", email=\"a,token=ATTACKER\"":                         "",
		"Authorization: Token $API_KEY, token=ATTACKER":                                               "",
		"Authorization: Token\ttoken=$API_KEY,\temail=\"a\" Token ATTACKER":                           "",
		"Authorization: Bearer token=\"$API_KEY\", email=\"a@b.test\"":                                "",
		"Authorization: Basic token=\"$API_KEY\", email=\"YTpi\"":                                     "",
		"X-Api-Key: Token token=\"$API_KEY\", email=\"a@b.test\"":                                     "",
		"X-Api-Key: Token token=ATTACKER nonce=$API_KEY":                                              "",
		"Authorization: Bearer\tATTACKER=x,y=$API_KEY":                                                "", // more than one credential
		"Authorization: sk-live-0123456789abcdefgh $API_KEY":                                          "",
		"X-Api-Key: ATTACKER $API_KEY":                                                                "",
		"X-Api-Key: ATTACKER;$API_KEY":                                                                "",
		"X-Api-Key: $API_KEY\tATTACKER":                                                               "",
		"X-Api-Key: key=ATTACKER&key=$API_KEY":                                                        "",
		"X-Data: ATTACKER $HEADER_KEY":                                                                "",

		"Authorization: $API_KEY":                                   "REAL-api-value-0123456789",
		"Authorization: ${API_KEY}":                                 "REAL-api-value-0123456789",
		"Authorization: Bearer   $API_KEY":                          "Bearer   REAL-api-value-0123456789",
		"Authorization: token $API_KEY":                             "token REAL-api-value-0123456789",
		"Authorization: Basic $API_KEY":                             "Basic REAL-api-value-0123456789",
		"Authorization: " + basicOf("a b, c:$API_KEY"):              basicOf("a b, c:REAL-api-value-0123456789"),
		"Authorization: GenieKey $API_KEY":                          "GenieKey REAL-api-value-0123456789",
		"Authorization: DeepL-Auth-Key $API_KEY":                    "DeepL-Auth-Key REAL-api-value-0123456789",
		"Authorization: sso-key $API_KEY:$API_KEY_2":                "sso-key REAL-api-value-0123456789:REAL-second",
		"Authorization: Token token=$API_KEY":                       "Token token=REAL-api-value-0123456789",
		"Authorization: Token token=\"$API_KEY\"":                   "Token token=\"REAL-api-value-0123456789\"",
		"Authorization: PVEAPIToken=root@pam!ci=$API_KEY":           "PVEAPIToken=root@pam!ci=REAL-api-value-0123456789",
		"Authorization: MediaBrowser Device=\"a b\",Token=$API_KEY": "MediaBrowser Device=\"a b\",Token=REAL-api-value-0123456789",
		"Authorization: Foo token=\"$API_KEY\", email=\"a@b.test\"": "Foo token=\"REAL-api-value-0123456789\", email=\"a@b.test\"",
		"Authorization: MediaBrowser Client=\"c\", Device=\"a b\", DeviceId=\"eA==\", Version=\"1.0\", Token=\"$API_KEY\"": "MediaBrowser Client=\"c\", Device=\"a b\", DeviceId=\"eA==\", Version=\"1.0\", Token=\"REAL-api-value-0123456789\"",
		"Authorization: Foo token=$API_KEY, key=$API_KEY_2":                                                                "Foo token=REAL-api-value-0123456789, key=REAL-second",
		"Authorization: Token token=\"$API_KEY\", email=\"a@b.test\"":                                                      "Token token=\"REAL-api-value-0123456789\", email=\"a@b.test\"",
		"Authorization: Token   token=$API_KEY,nonce=\"1\",timestamp=2":                                                    "Token   token=REAL-api-value-0123456789,nonce=\"1\",timestamp=2",
		"Authorization: OAuth oauth_consumer_key=\"01\", oauth_token=\"$API_KEY\"":                                         "OAuth oauth_consumer_key=\"01\", oauth_token=\"REAL-api-value-0123456789\"",
		"Authorization: Foo password=\"$API_KEY\", consumer_key=\"abc\"":                                                   "Foo password=\"REAL-api-value-0123456789\", consumer_key=\"abc\"",
		"X-Api-Key: $API_KEY":        "REAL-api-value-0123456789",
		"X-Api-Key: Bearer $API_KEY": "Bearer REAL-api-value-0123456789",
	} {
		name, text, _ := strings.Cut(line, ": ")
		for _, mode := range []policy.Foreign{policy.ForeignStrip, policy.ForeignBlock} {
			in := input(request("GET", "https://good.test/"), allNames...)
			in.Request.Header[name], in.Decision.Rule.Foreign = []string{text}, mode
			reason, out := outcome(t, table, in)
			if want != "" && (reason != "" || out.Get(name) != want) {
				t.Errorf("%s: %q %q, want %q", line, reason, out.Get(name), want)
			}
			if want == "" && reason != policy.ForeignCredential && reason != policy.Smuggling {
				t.Errorf("%s went out as %q", line, out.Get(name))
			}
		}
	}
	t.Run("pass", func(t *testing.T) {
		in := input(request("GET", "https://good.test/", "X-Api-Key: mine $API_KEY"), allNames...)
		in.Decision.Rule.Foreign = policy.ForeignPass
		if reason, out := outcome(t, table, in); out.Get("X-Api-Key") != "mine "+realAPI {
			t.Errorf("%q %q", reason, out.Get("X-Api-Key"))
		}
	})
}

// TestForeignUnderAnotherName: a credential whose name a server folds into that
// of a credential field is one, too.
func TestForeignUnderAnotherName(t *testing.T) {
	table := testTable()
	for _, name := range []string{"X_Api_Key", "X_api_key", "x_api_key", "X-Api_Key", "X.Api.Key"} {
		in := input(request("GET", "https://good.test/"), allNames...)
		in.Request.Header = http.Header{name: {"attacker"}, "X_Other": {"a"}}
		if reason, out := outcome(t, table, in); reason != "" || out[name] != nil || out["X_Other"] == nil {
			t.Errorf("%s: %q %v", name, reason, out)
		}
		in.Decision.Rule.Foreign = policy.ForeignBlock
		if reason, _ := outcome(t, table, in); reason != policy.ForeignCredential {
			t.Errorf("%s: %q", name, reason)
		}
	}
	own := NewTable([]Secret{
		{Name: "DATA_KEY", Spec: &policy.Secret{Headers: []string{"X_Data_Key", "Y-Data-Key"}}, Covers: covers(goodHost)},
	}, nil, testKey)
	for _, name := range []string{"X_data_key", "X_Data_Key", "X-Data-Key", "X.data.key", "Y_data_key", "Y-Data-Key"} {
		in := input(request("GET", "https://good.test/"), "DATA_KEY")
		in.Request.Header = http.Header{name: {"attacker"}, "X_other": {"a"}}
		if reason, out := outcome(t, own, in); reason != "" || out[name] != nil || out["X_other"] == nil {
			t.Errorf("%s: %q %v", name, reason, out)
		}
	}
	for query, want := range map[string]string{
		"a=1;access_token=mine":        "refused",
		"a=1;b=2;Access%5FToken=mine":  "refused",
		"key=$MAP_KEY;api_key=mine":    "refused",
		"key=mine+$MAP_KEY":            "refused",
		"key=mine%20$MAP_KEY":          "refused",
		"key=mine%00$MAP_KEY":          "refused",
		"key=mine%3B$MAP_KEY":          "refused",
		"key=$MAP_KEY%26key=mine":      "refused",
		"a=1&access-token=mine":        "a=1",
		"a=1&access.token=mine":        "a=1",
		"a=1&X_API_KEY=mine&api%20key": "a=1&api%20key",
		"a=1;b=2&c;access_token=":      "a=1;b=2&c;access_token=",
		"key=Bearer+$MAP_KEY":          "key=Bearer+v",
		// Under which PHP, Rack and others know the same parameter.
		"a=1&+api_key=mine":               "a=1",
		"a=1&%20api_key=mine":             "a=1",
		"a=1&api_key%00=mine":             "a=1",
		"a=1&api_key%00x=mine":            "a=1",
		"a=1&api_key[]=mine":              "a=1",
		"a=1&api_key%5B0%5D=mine":         "a=1",
		"a=1&api_key[0][]=mine":           "a=1",
		"a=1&[api_key]=mine":              "a=1",
		"a=1;+api_key[]=mine":             "refused",
		"a=1&map.key=mine":                "a=1",
		"a=1&map_key=mine":                "a=1",
		"a=1&Map%20Key[]=mine":            "a=1",
		"a=1&+key=mine":                   "a=1",
		"a=1&KEY%00=mine":                 "a=1",
		"a=1;b=2&c;map.key=mine":          "refused",
		"key=$MAP_KEY&[key]=mine":         "key=v",
		"key=$MAP_KEY&map_key[]=mine":     "key=v",
		"a=1&api_key[a]=b&_key=1&keys=2":  "a=1&api_key[a]=b&_key=1&keys=2",
		"a=1&[]=b&=c&%00key=2&key%5F%00=": "a=1&[]=b&=c&%00key=2&key%5F%00=",
	} {
		for _, mode := range []policy.Foreign{policy.ForeignStrip, policy.ForeignBlock} {
			if mode == policy.ForeignBlock && (want == "a=1" || want == "key=v") {
				continue
			}
			in := input(request("GET", "https://good.test/"), "API_KEY", "MAP_KEY")
			in.Request.URL, in.Decision.Rule.Foreign = &url.URL{Scheme: "https", Host: "good.test", Path: "/x", RawQuery: query}, mode
			out, refusal := sentTarget(t, in, "v")
			switch {
			case refusal != nil && (want != "refused" && mode == policy.ForeignStrip || refusal.Reason != policy.ForeignCredential && refusal.Reason != policy.PlaceholderPlace):
				t.Errorf("%s: %v", query, refusal)
			case refusal == nil && out.URL.RawQuery != want:
				t.Errorf("%s went out as %q, want %q", query, out.URL.RawQuery, want)
			}
		}
	}
}
