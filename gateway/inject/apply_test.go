package inject

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy"
	"sallyport/secrets"
)

func planned(t *testing.T, lines ...string) (*Plan, *http.Request) {
	t.Helper()
	r := request("GET", "https://good.test/", lines...)
	p, refusal := testTable().Plan(input(r, allNames...))
	if refusal != nil {
		t.Fatal(refusal)
	}
	return p, r.Clone(r.Context())
}

func TestApplyNeedsEveryValue(t *testing.T) {
	for _, line := range []string{"Authorization: Bearer $API_KEY", "Authorization: " + basicOf("x:$API_KEY")} {
		p, out := planned(t, line)
		for name, values := range map[string]map[string]secrets.Value{"none": nil, "another": {"API_KEY_2": mustValue(t, "x")}, "zero": {"API_KEY": {}}} {
			if err := p.Apply(out, values); err == nil || !strings.Contains(err.Error(), `secret "API_KEY"`) {
				t.Errorf("%s: error %v", name, err)
			}
			if got := out.Header.Get("Authorization"); got != strings.TrimPrefix(line, "Authorization: ") {
				t.Errorf("%s: header became %q", name, got)
			}
		}
	}
}

func TestApplyRefusesAnotherRequest(t *testing.T) {
	p, out := planned(t, "Authorization: Bearer $API_KEY")
	out.Header.Add("Authorization", "Bearer other")
	if err := p.Apply(out, testValues(t)); !errors.Is(err, errChanged) {
		t.Errorf("error %v", err)
	}
	t.Run("a header that was taken out stays out", func(t *testing.T) {
		p, out := planned(t, "Authorization: Bearer $API_KEY")
		out.Header.Del("Authorization")
		if err := p.Apply(out, testValues(t)); err != nil || len(out.Header) != 0 {
			t.Errorf("error %v, header %v", err, out.Header)
		}
	})
}

func TestPlanDoesNotChangeTheRequest(t *testing.T) {
	r := request("GET", "https://good.test/?a=b", "Authorization: Bearer $API_KEY", "X-Api-Key: foreign", "X-Api-Key: two")
	before := r.Header.Clone()
	p, refusal := testTable().Plan(input(r, allNames...))
	if refusal != nil {
		t.Fatal(refusal)
	}
	if err := p.Apply(r.Clone(r.Context()), testValues(t)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, r.Header); diff != "" {
		t.Error(diff)
	}
}

// TestSEC32NothingPrintsAValue tries every way in which a plan, a table, a
// refusal or an error could be printed after a value was used.
func TestSEC32NothingPrintsAValue(t *testing.T) {
	p, out := planned(t, "Authorization: "+basicOf("$API_KEY:"), "X-Api-Key: $API_KEY_2")
	values := testValues(t)
	values["API_KEY"] = mustValue(t, "REAL:colon")
	err := p.Apply(out, values)
	if err == nil {
		t.Fatal("a colon in the user was accepted")
	}
	for _, v := range []any{err, p, p.Uses(), p.Secrets(), values, testTable(), struct{ V secrets.Value }{values["API_KEY_2"]}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text := fmt.Sprintf(verb, v)
			if strings.Contains(text, "REAL") || strings.Contains(text, fmt.Sprintf("%x", "REAL")) {
				t.Errorf("%s of %T prints a value: %.200s", verb, v, text)
			}
		}
	}
}

func TestSEC05ValueThatWouldAddALine(t *testing.T) {
	if err := legal("a\r\nX-Evil: 1"); err == nil {
		t.Error("a line break is legal")
	}
	for _, bad := range []string{"a\nb", "a\rb", "a\x00b", "a\x7fb"} {
		if legal(bad) == nil {
			t.Errorf("%q is legal", bad)
		}
		if _, err := secrets.NewValue([]byte(bad)); err == nil {
			t.Errorf("%q is a value", bad)
		}
	}
}

func TestTrailerValueIsLookedAtBeforeItLeaves(t *testing.T) {
	for name, tt := range map[string]struct {
		value string
		pass  bool
		want  policy.Reason
	}{
		"placeholder":     {value: "x$API_KEY", want: policy.PlaceholderPlace},
		"other secret's":  {value: "$OTHER_KEY", want: policy.PlaceholderLeak},
		"escaped":         {value: "%24OTHER_KEY", want: policy.PlaceholderLeak},
		"nothing":         {value: "abc"},
		"passes by order": {value: "$OTHER_KEY", pass: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := request("POST", "https://good.test/")
			r.Trailer = http.Header{"X-Sum": nil}
			in := input(r, allNames...)
			in.Decision.Rule.OnLeakPass = tt.pass
			p, refusal := testTable().Plan(in)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if p.Empty() {
				t.Fatal("plan is empty")
			}
			out := r.Clone(r.Context())
			out.Body = io.NopCloser(strings.NewReader("body"))
			if err := p.Apply(out, nil); err != nil {
				t.Fatal(err)
			}
			r.Trailer.Set("X-Sum", tt.value) // net/http does so when the body ends
			body, err := io.ReadAll(out.Body)
			if string(body) != "body" {
				t.Errorf("body %q", body)
			}
			var got *Refusal
			if errors.As(err, &got) != (tt.want != "") || got != nil && got.Reason != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestEnvironmentHoldsPlaceholders(t *testing.T) {
	table := testTable()
	got := table.Environment("s1", []string{"API_KEY", "GH_TOKEN", "NO_SUCH"})
	want := map[string]string{"API_KEY": "$API_KEY", "GH_TOKEN": table.Placeholder("s1", "GH_TOKEN")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if table.Placeholder("s1", "GH_TOKEN") == table.Placeholder("s2", "GH_TOKEN") {
		t.Error("two sandboxes share a shaped placeholder")
	}
	if testTable().Placeholder("s1", "GH_TOKEN") != table.Placeholder("s1", "GH_TOKEN") {
		t.Error("a placeholder does not survive a restart")
	}
}
