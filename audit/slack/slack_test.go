package slack

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport/audit"
)

func TestAUD01HostileTextIsPlain(t *testing.T) {
	var got payload
	var raw []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ = io.ReadAll(r.Body)
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "ok")
	}))
	defer server.Close()
	s, err := New(Config{URL: audit.Fixed(server.URL)})
	if err != nil {
		t.Fatal(err)
	}
	hostile := "<!channel> <http://evil.test|click> *bold* _i_ `c` @here &amp; \u202e\x1b[2J\n" + strings.Repeat("x", 5000)
	a := audit.Alert{ID: "01", Name: hostile, State: audit.Firing, Severity: audit.High, Message: hostile, Count: 3,
		Event: &audit.Event{Sandbox: &audit.Sandbox{Name: hostile}, Rule: &audit.Rule{File: hostile, Line: 1}}}
	if err := s.Send(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(got.Text, "<>\x1b\u202e\n") || strings.Contains(got.Text, "*bold*") || strings.Contains(got.Text, "@here") || got.Mrkdwn || got.LinkNames {
		t.Errorf("text %q", got.Text)
	}
	for _, b := range got.Attachments[0].Blocks {
		texts := b.Fields
		if b.Text != nil {
			texts = append(texts, *b.Text)
		}
		for _, x := range texts {
			if x.Type != "plain_text" || len(x.Text) > 2000 || strings.ContainsAny(x.Text, "\x1b\u202e\n") {
				t.Errorf("block %+v", x)
			}
		}
	}
}

func TestColourAndState(t *testing.T) {
	for _, test := range []struct {
		alert audit.Alert
		title string
		color string
	}{
		{audit.Alert{Name: "a", State: audit.Firing, Severity: audit.Critical}, "FIRING: a (critical)", "#a30200"},
		{audit.Alert{Name: "a", State: audit.Firing, Severity: audit.Low}, "FIRING: a (low)", "#daa038"},
		{audit.Alert{Name: "a", State: audit.Resolved, Severity: audit.Critical}, "RESOLVED: a (critical)", "#2eb886"},
	} {
		p := message(test.alert, "#ops")
		if p.Attachments[0].Blocks[0].Text.Text != test.title || p.Attachments[0].Color != test.color || p.Channel != "#ops" {
			t.Errorf("%+v", p)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a sink without a URL was made")
	}
}
