package otlp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
)

func TestSend(t *testing.T) {
	var got export
	reply := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/logs" || r.Header.Get("Authorization") != "Bearer t" {
			t.Errorf("%s %v", r.URL.Path, r.Header)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		io.WriteString(w, reply)
	}))
	defer server.Close()
	s, err := New(Config{URL: audit.Fixed(server.URL), Headers: map[string]audit.Text{"Authorization": audit.Fixed("Bearer t")}, Resource: map[string]string{"host.name": "gw"}})
	if err != nil {
		t.Fatal(err)
	}
	a := audit.Alert{ID: "01", Name: "x", State: audit.Firing, Severity: audit.Critical, Message: "m\x1b", LastSeen: time.Unix(1700000000, 5), Count: 4,
		Event: &audit.Event{Host: "h\u202e.test", Reason: "placeholder_leak", Req: "r", Sandbox: &audit.Sandbox{Name: "ci", ID: "i"}, Rule: &audit.Rule{File: "f", Line: 2}}}
	for _, reply = range []string{"", "{}", `{"partialSuccess":{}}`, `{"partialSuccess":{"rejectedLogRecords":"0"}}`} {
		if err := s.Send(t.Context(), a); err != nil {
			t.Errorf("reply %q: %v", reply, err)
		}
	}
	record := got.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	if record.TimeUnixNano != "1700000000000000005" || record.SeverityNumber != 21 || record.Body.String != `m\x1b` {
		t.Errorf("record %+v", record)
	}
	attributes := map[string]string{}
	for _, x := range append(record.Attributes, got.ResourceLogs[0].Resource.Attributes...) {
		attributes[x.Key] = x.Value.String
	}
	for k, want := range map[string]string{"service.name": "sallyport", "host.name": "gw", "server.address": `h\u202e.test`, "sallyport.alert.count": "4", "sallyport.rule": "f:2", "sallyport.sandbox.name": "ci"} {
		if attributes[k] != want {
			t.Errorf("%s = %q, want %q", k, attributes[k], want)
		}
	}
	for _, reply = range []string{`{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"no\n"}}`, `{"partialSuccess":{"rejectedLogRecords":1}}`} {
		if err := s.Send(t.Context(), a); !audit.IsPermanent(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("reply %q: %v", reply, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a sink without a URL was made")
	}
}
