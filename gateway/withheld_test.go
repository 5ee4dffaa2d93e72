package gateway

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/audit"
	"sallyport/policy"
)

// TestRefusedSecretsAreWithheld: the record of a refused request says of no
// secret that it was sent, whatever step refused it.
func TestRefusedSecretsAreWithheld(t *testing.T) {
	l := newLab(t)
	o := l.origin(t)
	inject := func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} }
	l.allow("api.test", o.port, inject)
	l.allow("grpc.test", o.port, inject, func(r *policy.Rule) { r.Addresses = nil })
	l.load()
	key := "$" + secretName
	withheld := func(name, place string, n int) audit.SecretUse {
		return audit.SecretUse{Name: name, Place: place, Action: "withheld", Count: n}
	}
	for name, tt := range map[string]struct {
		host   string
		reason policy.Reason
		fields http.Header
		want   []audit.SecretUse
	}{
		"a placeholder that may stand there and one that may not": {
			"api.test", policy.PlaceholderPlace, http.Header{"Authorization": {"Bearer " + key}, "X-Note": {key, key}},
			[]audit.SecretUse{withheld(secretName, "header Authorization", 1), withheld(secretName, "header X-Note", 2)},
		},
		"an address that may not be dialled": {
			"grpc.test", policy.ResolvesLoopback, http.Header{"Authorization": {"Bearer " + key}, "X-Api-Key": {"brought along"}},
			[]audit.SecretUse{withheld("", "header X-Api-Key", 1), withheld(secretName, "header Authorization", 1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := http.NewRequest(http.MethodGet, o.address(tt.host+"/hello"), nil)
			must(t, err)
			q.Header = tt.fields
			r, _, err := body(l.client(t, false).Do(q))
			must(t, err)
			e := l.await(t, "the refusal", func(e *audit.Event) bool { return e.Req == r.Header.Get("X-Sallyport-Request") })
			if e.Verdict != "deny" || e.Reason != string(tt.reason) {
				t.Errorf("%s %s: %s", e.Verdict, e.Reason, e.Message)
			}
			if diff := cmp.Diff(tt.want, e.Secrets); diff != "" {
				t.Error(diff)
			}
		})
	}
	if n := len(o.saw()); n != 0 {
		t.Errorf("the origin saw %d requests", n)
	}
}
