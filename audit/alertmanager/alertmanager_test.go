package alertmanager

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport/audit"
)

func TestSend(t *testing.T) {
	var got []postable
	var path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, err := New(Config{URL: audit.Fixed(server.URL + "/"), Labels: map[string]string{"team": "sec"}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	a := audit.Alert{ID: "01", Name: "exfiltration", State: audit.Firing, Severity: audit.Critical, Group: map[string]string{"sandbox": "ci", "host": ""},
		Count: 7, FirstSeen: now.Add(-time.Minute), LastSeen: now, Message: "m",
		Event: &audit.Event{Host: "h\x1b.test", Reason: "placeholder_leak", Sandbox: &audit.Sandbox{Name: "ci"}, Rule: &audit.Rule{File: "ci.hcl", Line: 3}}}
	if err := s.Send(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	want := []postable{{
		Labels:      map[string]string{"alertname": "exfiltration", "severity": "critical", "service": "sallyport", "team": "sec", "sandbox": "ci"},
		Annotations: map[string]string{"summary": "m", "count": "7", "id": "01", "sandbox": "ci", "host": `h\x1b.test`, "reason": "placeholder_leak", "rule": "ci.hcl:3"},
		StartsAt:    now.Add(-time.Minute), EndsAt: now.Add(DefaultHold),
	}}
	if diff := cmp.Diff(want, got); diff != "" || path != "/api/v2/alerts" {
		t.Errorf("%s %s", path, diff)
	}
	firing := got[0].Labels
	a.State, a.Count, a.Event = audit.Resolved, 9, nil
	if err := s.Send(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(firing, got[0].Labels); diff != "" || !got[0].EndsAt.Equal(now) {
		t.Errorf("resolved: ends at %s, labels %s", got[0].EndsAt, diff)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a sink without a URL was made")
	}
}
