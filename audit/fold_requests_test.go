package audit

import (
	"fmt"
	"testing"
)

// refusedRequest is a denial of a request that was answered with its ID.
func refusedRequest(n int, path string) *Event {
	e := denial("a.test")
	e.Kind, e.DNS, e.Reason, e.Req = KindHTTP, nil, "path_not_allowed", fmt.Sprint("req", n)
	e.HTTP = &HTTP{Method: "GET", Path: path}
	return e
}

// TestFolderFoldsAFloodOfRequests: refused requests are written each by itself,
// whatever they ask for, until there are more than anybody makes on purpose.
// Then each is answered with the ID of the record that counts it.
func TestFolderFoldsAFloodOfRequests(t *testing.T) {
	m := &memory{}
	f := newFolder(t, FolderOptions{Log: m, Refused: 500, Keys: 2})
	answered := map[string]int{}
	for n := range 3000 {
		e := refusedRequest(n, fmt.Sprint("/", n%500))
		if n >= 500 {
			e = refusedRequest(n, fmt.Sprint("/", n%2))
		}
		if err := f.Write(e); err != nil {
			t.Fatal(err)
		}
		answered[e.Req]++
	}
	if n := len(m.list()); n != 500 {
		t.Errorf("%d requests were written each by itself, want 500", n)
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, e := range m.list() {
		if n := answered[e.Req]; n != int(max(e.Count, 1)) {
			t.Errorf("%d answers name the record %s, which counts %d", n, e.Req, e.Count)
		}
	}
	if all := m.list(); len(all) != 502 || m.total() != 3000 || all[501].HTTP.Path == all[500].HTTP.Path {
		t.Errorf("%d records that stand for %d, want 502 for 3000", len(all), m.total())
	}
}

// TestFolderFoldsAFloodThatAlerts: a flood of what alerts is folded as well, or
// it would push everything else out of the log; but different secrets and
// alerts are told apart, and nothing is folded before there is a flood.
func TestFolderFoldsAFloodThatAlerts(t *testing.T) {
	m := &memory{}
	f := newFolder(t, FolderOptions{Log: m, Refused: 10})
	for n := range 1000 {
		e := refusedRequest(n, "/")
		e.Reason, e.Severity, e.Alert = "placeholder_leak", Critical, fmt.Sprint("alert", n%2)
		e.Secrets = []SecretUse{{Name: fmt.Sprint("KEY", n%4), Action: "withheld"}}
		if err := f.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := len(m.list()); n != 14 || m.total() != 1000 {
		t.Errorf("%d records that stand for %d, want 14 for 1000", n, m.total())
	}
	for _, e := range m.list() {
		if !e.Alerting() || e.Alert[len(e.Alert)-1]&1 != e.Secrets[0].Name[3]&1 {
			t.Errorf("record of %s and %s", e.Alert, e.Secrets[0].Name)
		}
	}
}
