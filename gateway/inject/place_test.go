package inject

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy"
)

func TestCredentialHeadersAreCanonicalAndDistinct(t *testing.T) {
	list := CredentialHeaders()
	seen := map[string]bool{}
	for _, h := range list {
		if textproto.CanonicalMIMEHeaderKey(h) != h || seen[h] || never(h) {
			t.Errorf("%q is not canonical, or listed twice, or never a place", h)
		}
		seen[h] = true
	}
	for _, h := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "Private-Token", "X-Figma-Token"} {
		if !slices.Contains(list, h) {
			t.Errorf("%q is missing", h)
		}
	}
}

func TestSEC08PlacesOfASecret(t *testing.T) {
	table := testTable()
	tests := map[string]struct {
		line   string
		reason policy.Reason
		want   string // the line that goes out
	}{
		"any letter case":          {"AUTHORIZATION: Bearer $API_KEY", "", "Authorization: Bearer " + realAPI},
		"braced":                   {"authorization: token ${API_KEY}", "", "Authorization: token " + realAPI},
		"usual key header":         {"x-goog-api-key: $API_KEY", "", "X-Goog-Api-Key: " + realAPI},
		"unusual header":           {"X-Data: $API_KEY", policy.PlaceholderPlace, ""},
		"user agent":               {"User-Agent: $API_KEY", policy.PlaceholderPlace, ""},
		"referer":                  {"Referer: https://x.test/?k=$API_KEY", policy.PlaceholderPlace, ""},
		"cookie":                   {"Cookie: k=$API_KEY", policy.PlaceholderPlace, ""},
		"its own header":           {"X-DATA: $HEADER_KEY", "", "X-Data: REAL-header"},
		"own header replaces list": {"Authorization: Bearer $HEADER_KEY", policy.PlaceholderPlace, ""},
		"longest name wins":        {"Authorization: Bearer $API_KEY_2", "", "Authorization: Bearer REAL-second"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reason, out := outcome(t, table, input(request("GET", "https://good.test/", tt.line), allNames...))
			if reason != tt.reason {
				t.Fatalf("reason %q, want %q", reason, tt.reason)
			}
			if tt.want != "" {
				name, value, _ := strings.Cut(tt.want, ": ")
				if diff := cmp.Diff([]string{value}, out[name]); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestBoundaries(t *testing.T) {
	table := testTable()
	gh := table.Placeholder("s1", "GH_TOKEN")
	for value, want := range map[string]string{
		"$API_KEY":            realAPI,
		"a$API_KEY":           "a" + realAPI,
		"$API_KEY-2":          realAPI + "-2",
		"$API_KEY.$API_KEY_2": realAPI + ".REAL-second",
		"$$API_KEY":           "$" + realAPI,
		"${API_KEY}2":         realAPI + "2",
		"$API_KEY${API_KEY}":  realAPI + realAPI,
		gh:                    realGH,
		"x" + gh + "y":        "x" + realGH + "y",
	} {
		reason, out := outcome(t, table, input(request("GET", "https://good.test/", "X-Api-Key: "+value), allNames...))
		if reason != "" || out.Get("X-Api-Key") != want {
			t.Errorf("%q gave %q %q, want %q", value, reason, out.Get("X-Api-Key"), want)
		}
	}
	for _, value := range []string{
		"$FOO", "${FOO}", "$API_KEYS", "$API_KEY_3", "$API_KEYx", "$api_key", "${API_KEY", "$ API_KEY", "$", "${}", "$" + strings.Repeat("A", 100),
		gh[:len(gh)-1], "ghp_" + strings.Repeat("a", 36),
	} {
		in := input(request("GET", "https://good.test/", "X-Other: "+value), allNames...)
		reason, out := outcome(t, table, in)
		if reason != "" || out.Get("X-Other") != value {
			t.Errorf("%q gave %q %q, want it left alone", value, reason, out.Get("X-Other"))
		}
	}
}

func TestValueIsNotExpandedAgain(t *testing.T) {
	table := testTable()
	values := testValues(t)
	values["API_KEY"] = mustValue(t, "$API_KEY_2${API_KEY}"+table.Placeholder("s1", "GH_TOKEN"))
	for _, line := range []string{"Authorization: Bearer $API_KEY", "Authorization: " + basicOf("x:$API_KEY")} {
		r := request("GET", "https://good.test/", line)
		p, refusal := table.Plan(input(r, allNames...))
		if refusal != nil {
			t.Fatal(refusal)
		}
		if err := p.Apply(r, values); err != nil {
			t.Fatal(err)
		}
		got := r.Header.Get("Authorization")
		if _, pass, ok := r.BasicAuth(); ok {
			got = "Bearer " + pass
		}
		if got != "Bearer "+values["API_KEY"].Reveal() {
			t.Errorf("got %q", got)
		}
	}
}

func TestSEC16TheSameForEveryMethodAndFraming(t *testing.T) {
	table := testTable()
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
		for name, frame := range map[string]func(*http.Request){
			"no body":        func(*http.Request) {},
			"length":         func(r *http.Request) { r.ContentLength, r.Body = 3, http.NoBody },
			"chunked":        func(r *http.Request) { r.ContentLength, r.TransferEncoding = -1, []string{"chunked"} },
			"expect":         func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
			"h2":             func(r *http.Request) { r.ProtoMajor, r.ProtoMinor = 2, 0 },
			"trailer":        func(r *http.Request) { r.Trailer = http.Header{"X-Sum": nil} },
			"content coding": func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		} {
			r := request(method, "https://good.test/x", "Authorization: Bearer $API_KEY")
			frame(r)
			reason, out := outcome(t, table, input(r, allNames...))
			if reason != "" || out.Get("Authorization") != "Bearer "+realAPI {
				t.Errorf("%s %s: %q %q", method, name, reason, out)
			}
		}
	}
}

func TestSet(t *testing.T) {
	table := testTable()
	for name, tt := range map[string]struct {
		lines []string
		want  []string
	}{
		"client sent none":            {nil, []string{"Bearer REAL-set"}},
		"replaces the client's":       {[]string{"Authorization: Bearer mine"}, []string{"Bearer REAL-set"}},
		"replaces all of them":        {[]string{"Authorization: Bearer a", "Authorization: Basic Yjpj"}, []string{"Bearer REAL-set"}},
		"placeholder keeps its form":  {[]string{"Authorization: token $SET_KEY"}, []string{"token REAL-set"}},
		"unknown placeholder is text": {[]string{"Authorization: Bearer $FOO"}, []string{"Bearer REAL-set"}},
	} {
		t.Run(name, func(t *testing.T) {
			reason, out := outcome(t, table, input(request("GET", "https://set.test/", tt.lines...), allNames...))
			if reason != "" {
				t.Fatal(reason)
			}
			if diff := cmp.Diff(tt.want, out["Authorization"]); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("not over plain HTTP", func(t *testing.T) {
		reason, out := outcome(t, table, input(request("GET", "http://set.test/"), allNames...))
		if reason != "" || out.Get("Authorization") != "" {
			t.Errorf("%q %v", reason, out)
		}
	})
	t.Run("not where the rule does not list it", func(t *testing.T) {
		reason, out := outcome(t, table, input(request("GET", "https://set.test/")))
		if reason != "" || out.Get("Authorization") != "" {
			t.Errorf("%q %v", reason, out)
		}
	})
	t.Run("raw in a header of its own, and as it is with a scheme", func(t *testing.T) {
		table := NewTable([]Secret{
			{Name: "RAW_KEY", Spec: &policy.Secret{Set: true, Headers: []string{"x-own"}}, Covers: covers("set.test")},
			{Name: "SCHEME_KEY", Spec: &policy.Secret{Set: true}, Covers: covers("set.test")},
		}, nil, testKey)
		r := request("GET", "https://set.test/")
		p, refusal := table.Plan(input(r, "RAW_KEY", "SCHEME_KEY"))
		if refusal != nil {
			t.Fatal(refusal)
		}
		values := testValues(t)
		values["RAW_KEY"], values["SCHEME_KEY"] = mustValue(t, "raw"), mustValue(t, "Digest abc")
		if err := p.Apply(r, values); err != nil {
			t.Fatal(err)
		}
		if r.Header.Get("X-Own") != "raw" || r.Header.Get("Authorization") != "Digest abc" {
			t.Errorf("header %v", r.Header)
		}
	})
}
