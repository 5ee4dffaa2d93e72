package inject

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy"
)

func TestPOL21ForeignCredential(t *testing.T) {
	table := testTable()
	tests := map[string]struct {
		url     string
		lines   []string
		foreign policy.Foreign
		reason  policy.Reason
		header  string
		want    []string
	}{
		"stripped by default":             {url: "https://good.test/", lines: []string{"Authorization: Bearer attacker"}, header: "Authorization"},
		"Basic is stripped":               {url: "https://good.test/", lines: []string{"Authorization: " + basicOf("a:b")}, header: "Authorization"},
		"a second header is stripped":     {url: "https://good.test/", lines: []string{"Authorization: Bearer $API_KEY", "X-Api-Key: attacker"}, header: "X-Api-Key"},
		"text of no known secret":         {url: "https://good.test/", lines: []string{"Authorization: Bearer $FOO"}, header: "Authorization"},
		"a header that a secret names":    {url: "https://good.test/", lines: []string{"X-Data: attacker"}, header: "X-Data"},
		"also over plain HTTP":            {url: "http://good.test/", lines: []string{"Authorization: Bearer attacker"}, header: "Authorization"},
		"block":                           {url: "https://good.test/", lines: []string{"Authorization: Bearer attacker"}, foreign: policy.ForeignBlock, reason: policy.ForeignCredential},
		"block a second header":           {url: "https://good.test/", lines: []string{"Authorization: Bearer $API_KEY", "X-Api-Key: attacker"}, foreign: policy.ForeignBlock, reason: policy.ForeignCredential},
		"block lets the placeholder pass": {url: "https://good.test/", lines: []string{"Authorization: Bearer $API_KEY"}, foreign: policy.ForeignBlock, header: "Authorization", want: []string{"Bearer " + realAPI}},
		"block lets none at all pass":     {url: "https://good.test/", foreign: policy.ForeignBlock, header: "Authorization"},
		"pass":                            {url: "https://good.test/", lines: []string{"Authorization: Bearer mine"}, foreign: policy.ForeignPass, header: "Authorization", want: []string{"Bearer mine"}},
		"host without a secret":           {url: "https://free.test/", lines: []string{"Authorization: Bearer mine"}, header: "Authorization", want: []string{"Bearer mine"}},
		"cookies are no credential":       {url: "https://good.test/", lines: []string{"Cookie: a=b"}, header: "Cookie", want: []string{"a=b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := input(request("POST", tt.url+"v1/files", tt.lines...), allNames...)
			in.Decision.Rule.Foreign = tt.foreign
			reason, out := outcome(t, table, in)
			if reason != tt.reason {
				t.Fatalf("reason %q, want %q", reason, tt.reason)
			}
			if diff := cmp.Diff(tt.want, out[tt.header]); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("is recorded", func(t *testing.T) {
		p, refusal := table.Plan(input(request("GET", "https://good.test/", "Authorization: Bearer $API_KEY", "X-Api-Key: attacker"), allNames...))
		if refusal != nil {
			t.Fatal(refusal)
		}
		want := []Use{
			{Place: "header X-Api-Key", Action: Stripped, Count: 1},
			{Name: "API_KEY", Place: "header Authorization", Action: Injected, Count: 1},
		}
		if diff := cmp.Diff(want, p.Uses()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"API_KEY"}, p.Secrets()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSEC25ClientsOwnBearerWithForeignPass(t *testing.T) {
	table := testTable()
	in := input(request("GET", "https://good.test/v2/x/blobs/1", "Authorization: Bearer eyJhbGciOi"), allNames...)
	in.Decision.Rule.Foreign = policy.ForeignPass
	p, refusal := table.Plan(in)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if !p.Empty() || len(p.Secrets()) != 0 {
		t.Errorf("plan %+v: swapping is not setting", p)
	}
}

func TestSEC28TwoCredentials(t *testing.T) {
	table := testTable()
	tests := map[string]struct {
		lines   []string
		foreign policy.Foreign
		reason  policy.Reason
		header  string
		want    []string
	}{
		"a second line is stripped":       {lines: []string{"Authorization: Bearer $API_KEY", "authorization: Bearer other"}, header: "Authorization", want: []string{"Bearer " + realAPI}},
		"the first line is stripped":      {lines: []string{"Authorization: Bearer other", "authorization: Bearer $API_KEY"}, header: "Authorization", want: []string{"Bearer " + realAPI}},
		"a second line with pass":         {lines: []string{"Authorization: Bearer $API_KEY", "authorization: Bearer other"}, foreign: policy.ForeignPass, reason: policy.Smuggling},
		"a second line with block":        {lines: []string{"Authorization: Bearer $API_KEY", "authorization: Bearer other"}, foreign: policy.ForeignBlock, reason: policy.ForeignCredential},
		"joined by a comma":               {lines: []string{"Authorization: Bearer $API_KEY, Bearer other"}, reason: policy.Smuggling},
		"joined before":                   {lines: []string{"Authorization: Bearer other, Bearer $API_KEY"}, reason: policy.Smuggling},
		"joined in a key header":          {lines: []string{"X-Api-Key: $API_KEY, other"}, reason: policy.Smuggling},
		"key header twice, the same":      {lines: []string{"X-Api-Key: $API_KEY", "X-Api-Key: $API_KEY"}, header: "X-Api-Key", want: []string{realAPI}},
		"key header twice, two secrets":   {lines: []string{"X-Api-Key: $API_KEY", "X-Api-Key: $API_KEY_2"}, reason: policy.Smuggling},
		"parameters are one credential":   {lines: []string{`Authorization: Digest username="$API_KEY", realm="x"`}, header: "Authorization", want: []string{`Digest username="` + realAPI + `", realm="x"`}},
		"two headers, both of the secret": {lines: []string{"Authorization: Bearer $API_KEY", "X-Api-Key: $API_KEY_2"}, header: "X-Api-Key", want: []string{"REAL-second"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := input(request("GET", "https://good.test/", tt.lines...), allNames...)
			in.Decision.Rule.Foreign = tt.foreign
			reason, out := outcome(t, table, in)
			if reason != tt.reason {
				t.Fatalf("reason %q, want %q", reason, tt.reason)
			}
			if diff := cmp.Diff(tt.want, out[tt.header]); diff != "" {
				t.Error(diff)
			}
		})
	}
}
