package otlp

import (
	"encoding/json"
	"errors"
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
		if err := s.Send(t.Context(), a); !audit.IsPermanent(err) || err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("reply %q: %v", reply, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a sink without a URL was made")
	}
}

func TestCarry(t *testing.T) {
	status, reply := http.StatusOK, "{}"
	var got struct {
		ResourceLogs []struct {
			Resource  struct{ Attributes []map[string]any }
			ScopeLogs []struct {
				LogRecords []struct {
					TimeUnixNano, EventName string
					SeverityNumber          int
					Body                    struct{ StringValue string }
					Attributes              []struct {
						Key   string
						Value struct{ StringValue, IntValue string }
					}
				}
			}
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/v1/logs" {
			t.Error(err, r.URL.Path)
		}
		w.WriteHeader(status)
		io.WriteString(w, reply)
	}))
	defer server.Close()
	s, err := New(Config{URL: audit.Fixed(server.URL), Resource: map[string]string{"host.name": "gw"}})
	if err != nil {
		t.Fatal(err)
	}
	e := &audit.Event{ID: "01", Seq: 7, Time: time.Unix(1700000000, 5), Kind: audit.KindHTTP, Phase: audit.PhaseDecision, Verdict: "deny", Reason: "path_not_allowed",
		Severity: audit.Low, Host: "h\u202e.test", Port: 443, HTTP: &audit.HTTP{Method: "GET", Path: "/x?secret=1"}, Sandbox: &audit.Sandbox{Name: "ci"}}
	if err := s.Carry(t.Context(), []*audit.Event{e, e}); err != nil {
		t.Fatal(err)
	}
	records := got.ResourceLogs[0].ScopeLogs[0].LogRecords
	if len(records) != 2 || records[0].TimeUnixNano != "1700000000000000005" || records[0].EventName != "sallyport.http.decision" || records[0].SeverityNumber != 9 {
		t.Fatalf("records %+v", records)
	}
	attributes := map[string]string{}
	for _, a := range records[0].Attributes {
		attributes[a.Key] = a.Value.StringValue + a.Value.IntValue
	}
	for k, want := range map[string]string{"log.record.uid": "01", "sallyport.seq": "7", "server.port": "443", "server.address": "h\u202e.test", "url.path": "/x",
		"sallyport.sandbox.name": "ci", "log.record.original": string(audit.AppendLine(nil, e))} {
		if attributes[k] != want {
			t.Errorf("%s = %q, want %q", k, attributes[k], want)
		}
	}
	for _, x := range []struct {
		status    int
		reply     string
		permanent bool
		rejected  int
	}{
		{503, "", false, 0}, {401, "", false, 0}, {404, "", false, 0}, {429, "", false, 0}, {400, "", true, 0}, {413, "", true, 0},
		{200, `{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"no\n"}}`, false, 1},
	} {
		status, reply = x.status, x.reply
		err := s.Carry(t.Context(), []*audit.Event{e, e})
		var rejected *audit.RejectedError
		if errors.As(err, &rejected); err == nil || audit.IsPermanent(err) != x.permanent || (x.rejected > 0) != (rejected != nil) || strings.Contains(err.Error(), "\n") {
			t.Errorf("answer %d %s: %v", x.status, x.reply, err)
		}
	}
}
