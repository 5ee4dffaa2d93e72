package inject

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sallyport/policy"
	"sallyport/secrets"
)

const oddValue = "a/b%c+d&e=f g#h?é$API_KEY"

func targetTable() *Table {
	return NewTable([]Secret{
		{Name: "API_KEY", Spec: &policy.Secret{}, Covers: covers(goodHost)},
		{Name: "BOT_KEY", Spec: &policy.Secret{Path: true, Placeholder: "bot-{rand:20}"}, Covers: covers(goodHost)},
		{Name: "MAP_KEY", Spec: &policy.Secret{Query: []string{"key", "map key"}, Headers: []string{"X-Map"}}, Covers: covers(goodHost)},
	}, []string{"s1"}, testKey)
}

func sentTarget(t *testing.T, in Input, value string) (*http.Request, *Refusal) {
	t.Helper()
	p, refusal := targetTable().Plan(in)
	if refusal != nil {
		return nil, refusal
	}
	out := in.Request.Clone(in.Request.Context())
	values := map[string]secrets.Value{}
	for _, n := range p.Secrets() {
		values[n] = mustValue(t, value)
	}
	if err := p.Apply(out, values); err != nil {
		t.Fatal(err)
	}
	return out, nil
}

func TestSEC10PathAndQuery(t *testing.T) {
	bot := targetTable().Placeholder("s1", "BOT_KEY")
	escaped := escape(oddValue)
	for name, tt := range map[string]struct {
		target string
		want   string
		reason policy.Reason
	}{
		"path":                       {target: "/bot$BOT_KEY/send", want: "/bot" + escaped + "/send"},
		"path, shaped":               {target: "/" + bot + "/send?a=b", want: "/" + escaped + "/send?a=b"},
		"path, escaped":              {target: "/bot%24BOT_KEY/%73end%2Fx", want: "/bot" + escaped + "/%73end%2Fx"},
		"query":                      {target: "/x?a=%41+b&key=$MAP_KEY&c", want: "/x?a=%41+b&key=" + escaped + "&c"},
		"query, escaped":             {target: "/x?key=%24MAP_KEY&key=%24%7BMAP_KEY%7D", want: "/x?key=" + escaped + "&key=" + escaped},
		"query, name escaped":        {target: "/x?map%20key=p%2F$MAP_KEY-s", want: "/x?map%20key=p%2F" + escaped + "-s"},
		"another parameter":          {target: "/x?k=$MAP_KEY", reason: policy.PlaceholderPlace},
		"parameter of another":       {target: "/x?key=$API_KEY", reason: policy.PlaceholderPlace},
		"name of a parameter":        {target: "/x?$MAP_KEY=1", reason: policy.PlaceholderPlace},
		"path of one without":        {target: "/$MAP_KEY", reason: policy.PlaceholderPlace},
		"query of one with a path":   {target: "/x?key=$BOT_KEY", reason: policy.PlaceholderPlace},
		"split by a raw escape":      {target: "/x?key=$MAP_KE%59&x=%zz", want: "/x?key=" + escaped + "&x=%zz"},
		"name goes on when decoded":  {target: "/x?key=$MAP_KEY%41", reason: policy.PlaceholderPlace},
		"foreign key is taken out":   {target: "/x?key=mine&b=1&api_key=mine&key=$MAP_KEY", want: "/x?b=1&key=" + escaped},
		"foreign key of the usual":   {target: "/x?Access_Token=mine", want: "/x"},
		"parameters that are no key": {target: "/x?page=2&sort=key&key=", want: "/x?page=2&sort=key&key="},
	} {
		t.Run(name, func(t *testing.T) {
			r := request("GET", "https://good.test/")
			u, err := url.ParseRequestURI(tt.target)
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
			out, refusal := sentTarget(t, input(r, "API_KEY", "BOT_KEY", "MAP_KEY"), oddValue)
			if refusal != nil || tt.reason != "" {
				if refusal == nil || refusal.Reason != tt.reason {
					t.Errorf("refusal %v, want %q", refusal, tt.reason)
				}
				return
			}
			if got := out.URL.RequestURI(); got != tt.want {
				t.Errorf("sent %q, want %q", got, tt.want)
			}
			if strings.Contains(r.URL.RequestURI(), escaped) {
				t.Error("the planned request was changed")
			}
		})
	}
}

func TestForeignQueryModes(t *testing.T) {
	in := func(mode policy.Foreign, host string) Input {
		in := input(request("GET", "https://"+host+"/x?api_key=mine"), "API_KEY")
		in.Decision.Rule.Foreign = mode
		return in
	}
	if _, refusal := sentTarget(t, in(policy.ForeignBlock, goodHost), "v"); refusal == nil || refusal.Reason != policy.ForeignCredential {
		t.Errorf("block: %v", refusal)
	}
	if out, _ := sentTarget(t, in(policy.ForeignPass, goodHost), "v"); out.URL.RawQuery != "api_key=mine" {
		t.Errorf("pass: %q", out.URL.RawQuery)
	}
	if out, _ := sentTarget(t, in(policy.ForeignStrip, "free.test"), "v"); out.URL.RawQuery != "api_key=mine" {
		t.Errorf("no secret there: %q", out.URL.RawQuery)
	}
}

func TestPlacesInRecordsArePlain(t *testing.T) {
	for raw, want := range map[string]string{"k": "query k", "a%0Ab": "query", strings.Repeat("x", 100): "query", "": "query"} {
		_, refusal := targetTable().Plan(input(request("GET", "https://good.test/?"+raw+"=$MAP_KEY"), "MAP_KEY"))
		if refusal == nil || refusal.Uses[0].Place != want || strings.ContainsAny(refusal.Message, "\n") {
			t.Errorf("%q: %+v", raw, refusal)
		}
	}
}

func TestEscapeDecodesToItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		q, err := url.QueryUnescape(escape(s))
		p, err2 := url.PathUnescape(escape(s))
		if err != nil || err2 != nil || q != s || p != s || unescape(escape(s)) != s {
			t.Fatalf("%q became %q", s, escape(s))
		}
	})
}

func FuzzReplaceEscaped(f *testing.F) {
	for _, s := range []string{"key=$MAP_KEY", "%24MAP_KEY", "%24%7bMAP_KEY%7d%", "$MAP_KE%5", "%%24MAP_KEY%41", "a%2", "%zz$MAP_KEY"} {
		f.Add(s)
	}
	table := targetTable()
	p := &Plan{table: table, own: table.owners.of("s1"), secrets: []string{"MAP_KEY"}}
	v, _ := secrets.NewValue([]byte("<v>"))
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.Contains(raw, "<v>") {
			return
		}
		got, err := p.replaceEscaped(place{kind: inQuery, header: "key"}, raw, map[string]secrets.Value{"MAP_KEY": v})
		if err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		decoded, done := unescape(raw), 0
		for from := 0; ; {
			h, ok := table.find.next(decoded, from, p.own)
			if !ok {
				break
			}
			if from = h.end; h.cred.name == "MAP_KEY" {
				want.WriteString(decoded[done:h.start] + "<v>")
				done = h.end
			}
		}
		want.WriteString(decoded[done:])
		if diff := cmp.Diff(want.String(), unescape(got)); diff != "" && !strings.Contains(decoded, "%") {
			t.Fatalf("%q became %q: %s", raw, got, diff)
		}
	})
}

// TestSEC10PathThatNetURLWritesOtherwise: a placeholder is replaced in a path
// that leaves as it came, with bytes that net/url would escape.
func TestSEC10PathThatNetURLWritesOtherwise(t *testing.T) {
	escaped := escape(oddValue)
	for sent, want := range map[string]string{
		"/bot${BOT_KEY}/send":    "/bot" + escaped + "/send",
		"/$BOT_KEY/a|b":          "/" + escaped + "/a|b",
		"/$BOT_KEY/^\"<>`{}\\/é": "/" + escaped + "/^\"<>`{}\\/é",
		"/%24BOT_KEY/a|b%7C?x=|": "/" + escaped + "/a|b%7C?x=|",
	} {
		u, err := url.ParseRequestURI(sent)
		if err != nil {
			t.Fatal(err)
		}
		r := request("GET", "https://good.test/")
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
		p, refusal := targetTable().Plan(input(r, "BOT_KEY"))
		if refusal != nil {
			t.Errorf("%s: %v", sent, refusal)
			continue
		}
		out := r.Clone(r.Context())
		out.URL.Opaque, _, _ = strings.Cut(sent, "?") // as it leaves
		if err := p.Apply(out, map[string]secrets.Value{"BOT_KEY": mustValue(t, oddValue)}); err != nil {
			t.Errorf("%s: %v", sent, err)
		} else if got := out.URL.RequestURI(); got != want {
			t.Errorf("%s left as %q, want %q", sent, got, want)
		}
	}
}
