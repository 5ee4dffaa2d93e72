package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/gateway/capture"
	"sallyport/policy"
)

const narrowPolicy = `sandbox "ci" {
  allow "api.test" { methods = ["GET", "POST"] }
  allow "*.wild.test" {}
}
sandbox "prod" {
  allow "prod.test" {}
}
`

// daemonAt is a daemon in dir that opens no namespace: what it is given as one
// has no sockets, unless opened says otherwise.
func daemonAt(t testing.TB, dir string, opened ...func(string, capture.NamespaceOptions) (*capture.Sockets, error)) (d *daemonProcess, stop func()) {
	t.Helper()
	file := filepath.Join(dir, "policy.hcl")
	if err := os.WriteFile(file, []byte(narrowPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	st, err := build(settings{state: state, own: state, policy: []string{file}, log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	d = &daemonProcess{stack: st, file: &daemonFile{Control: &controlBlock{Socket: filepath.Join(dir, "c.sock")}}, runtime: dir}
	if diags := st.reload(); diags.HasErrors() {
		t.Fatal(diags.Err())
	}
	c := &d.captures
	c.st, c.runtime, c.open, c.held = st, dir, map[string]*openCapture{}, map[string]chan struct{}{}
	c.openNamespace = func(string, capture.NamespaceOptions) (*capture.Sockets, error) { return &capture.Sockets{}, nil }
	for _, open := range opened {
		c.openNamespace = open
	}
	if err := errors.Join(d.openControl(), c.reattach()); err != nil {
		t.Fatal(err)
	}
	served := background(hclog.NewNullLogger(), "control", d.control.serve)
	return d, func() {
		served()
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

// ask makes a call over the control socket of d.
func ask(t testing.TB, d *daemonProcess, method, path string, in, out any) (code int) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.control.path)
	}}
	defer tr.CloseIdleConnections()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://sallyport"+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && out != nil && len(data) > 0 {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		t.Fatalf("%s %s: %v: %s", method, path, err, data)
	}
	return resp.StatusCode
}

func allows(d *daemonProcess, id, method, host string) bool {
	sb := d.sandboxes.ByID(id)
	if sb == nil {
		return false
	}
	r := sb.Request(policy.StageRequest)
	r.Host, r.Port, r.Scheme, r.Method, r.Path, r.Now = host, 443, policy.HTTPS, method, "/", time.Now()
	return d.gateway.Policy().Decide(r).Verdict == policy.Allow
}

const someNamespace = "/proc/self/ns/net"

// TestNarrowedSandboxSurvivesRestart narrows, starts again, and ends on time.
func TestNarrowedSandboxSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	d, stop := daemonAt(t, dir)
	var made apiSandbox
	in := apiAttach{Name: "job-7", Parent: "ci", Only: []string{"API.test"}, Methods: []string{"GET"}, TTL: "1h",
		NetNS: someNamespace, Labels: map[string]string{"run": "7"}}
	if code := ask(t, d, "POST", "/v1/sandboxes", in, &made); code != http.StatusCreated {
		t.Fatalf("%d %+v", code, made)
	}
	if made.Where != "namespace "+someNamespace {
		t.Errorf("where it is: %q", made.Where)
	}
	if made.Name != "job-7" || made.Policy != "ci" || made.Labels["run"] != "7" || len(made.Env) == 0 || !strings.Contains(made.CA, "CERTIFICATE") ||
		made.Narrow == nil || made.Narrow.Parent != "ci" || !slices.Equal(made.Narrow.Only, []string{"api.test"}) || time.Until(made.Narrow.Expires) < 50*time.Minute {
		t.Errorf("answer %+v", made)
	}
	check := func(when string) {
		t.Helper()
		for _, c := range []struct {
			method, host string
			want         bool
		}{{"GET", "api.test", true}, {"POST", "api.test", false}, {"GET", "a.wild.test", false}, {"GET", "prod.test", false}} {
			if got := allows(d, made.ID, c.method, c.host); got != c.want {
				t.Errorf("%s: %s %s allowed %v", when, c.method, c.host, got)
			}
		}
	}
	check("at once")
	stop()
	d, stop = daemonAt(t, dir)
	check("after a restart")
	var shown apiSandbox
	if code := ask(t, d, "GET", "/v1/sandboxes/"+made.ID, nil, &shown); code != http.StatusOK || shown.Narrow == nil || !shown.Narrow.Expires.Equal(made.Narrow.Expires) {
		t.Errorf("after a restart %d %+v", code, shown)
	}
	if code := ask(t, d, "DELETE", "/v1/sandboxes/"+made.ID, nil, nil); code != http.StatusNoContent || d.sandboxes.ByID(made.ID) != nil {
		t.Errorf("removed: %d", code)
	}

	var short, kept apiSandbox
	for out, ttl := range map[*apiSandbox]string{&short: "1s", &kept: "1h"} {
		if code := ask(t, d, "POST", "/v1/sandboxes", apiAttach{Parent: "ci", TTL: ttl, NetNS: someNamespace}, out); code != http.StatusCreated {
			t.Fatal(code)
		}
	}
	for began := time.Now(); d.sandboxes.ByID(short.ID) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("a sandbox outlives its time")
		}
	}
	if d.sandboxes.ByID(kept.ID) == nil {
		t.Error("another ended with it")
	}
	stop()
	// What ends while the daemon is down is not there when it is up again.
	late := attachment{ID: audit.NewID(), Sandbox: "ci", NetNS: someNamespace, Narrow: &narrowed{Expires: time.Now().Add(-time.Second)}}
	if err := late.identify(); err != nil {
		t.Fatal(err)
	}
	state, err := audit.OpenState(filepath.Join(dir, "state", "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(late)
	if err = errors.Join(err, state.Put(attachedBucket, []byte(late.ID), b), state.Close()); err != nil {
		t.Fatal(err)
	}
	d, stop = daemonAt(t, dir)
	defer stop()
	if d.sandboxes.ByID(late.ID) != nil || d.sandboxes.ByID(kept.ID) == nil || len(d.captures.kept()) != 1 {
		t.Errorf("after another restart: %v", d.sandboxes.List())
	}
}

// TestNarrowingIsRefusedWhole: what names anything that the parent lacks makes
// nothing, and is told what.
func TestNarrowingIsRefusedWhole(t *testing.T) {
	d, stop := daemonAt(t, t.TempDir())
	defer stop()
	many := make([]string, maxNarrowedHosts+1)
	for i := range many {
		many[i] = fmt.Sprintf("h%d.wild.test", i)
	}
	for _, tt := range []struct {
		name     string
		in       apiAttach
		pointers []string
		line     int
	}{
		{"host of another sandbox", apiAttach{Parent: "ci", Only: []string{"api.test", "prod.test"}}, []string{"/only/1"}, 2},
		{"near name", apiAttach{Parent: "ci", Only: []string{"apj.test"}}, []string{"/only/0"}, 2},
		{"wider", apiAttach{Parent: "ci", Only: []string{"*"}}, []string{"/only/0"}, 0},
		{"method", apiAttach{Parent: "ci", Only: []string{"api.test"}, Methods: []string{"DELETE"}}, []string{"/methods/0"}, 2},
		{"two faults", apiAttach{Parent: "ci", Only: []string{"evil.test"}, Methods: []string{"get"}}, []string{"/only/0", "/methods/0"}, 0},
		{"no parent", apiAttach{Parent: "nobody", TTL: "1h"}, []string{"/parent"}, 0},
		{"no parent, as sandbox", apiAttach{Sandbox: "nobody", TTL: "1h"}, []string{"/sandbox"}, 0},
		{"two parents", apiAttach{Sandbox: "prod", Parent: "ci"}, []string{"/sandbox"}, 0},
		{"another's name", apiAttach{Parent: "ci", Name: "prod"}, []string{"/name"}, 0},
		{"name that lies", apiAttach{Parent: "ci", Name: "a\x1b[2J"}, []string{"/name"}, 0},
		{"no time", apiAttach{Parent: "ci", TTL: "soon"}, []string{"/ttl"}, 0},
		{"time past", apiAttach{Parent: "ci", TTL: "-1h"}, []string{"/ttl"}, 0},
		{"time without end", apiAttach{Parent: "ci", TTL: "100000d"}, []string{"/ttl"}, 0},
		{"too many", apiAttach{Parent: "ci", Only: many}, []string{"/only"}, 0},
	} {
		tt.in.NetNS = someNamespace
		var e apiError
		code := ask(t, d, "POST", "/v1/sandboxes", tt.in, &e)
		var pointers []string
		for _, f := range e.Faults {
			pointers = append(pointers, f.Pointer)
		}
		if code != http.StatusUnprocessableEntity || !slices.Equal(pointers, tt.pointers) || e.Error == "" {
			t.Errorf("%s: %d %+v, want %v", tt.name, code, e, tt.pointers)
			continue
		}
		if tt.line != 0 && (e.Faults[0].Nearest == nil || e.Faults[0].Nearest.Line != tt.line) {
			t.Errorf("%s: nearest %+v, want line %d", tt.name, e.Faults[0].Nearest, tt.line)
		}
	}
	for _, body := range []map[string]any{{"parent": "ci", "only": []string{}, "netns": someNamespace}, {"parent": "ci", "methods": []string{}, "netns": someNamespace}} {
		if code := ask(t, d, "POST", "/v1/sandboxes", body, nil); code != http.StatusUnprocessableEntity {
			t.Errorf("%v: %d", body, code)
		}
	}
	if list := d.sandboxes.List(); len(list) != 0 || len(d.captures.kept()) != 0 {
		t.Errorf("refused calls made %v", list)
	}
}

// TestControlCallers: who may call is for the kernel's credentials to say.
func TestControlCallers(t *testing.T) {
	m := callers{uids: []uint32{0, 1000}, gid: 50}
	for _, tt := range []struct {
		p    *peer
		want bool
	}{
		{nil, false},
		{&peer{uid: 0}, true},
		{&peer{uid: 1000, groups: []uint32{1000}}, true},
		{&peer{uid: 1001, groups: []uint32{1001}}, false},
		{&peer{uid: 1001, groups: []uint32{50}}, true},
		{&peer{uid: 1001, groups: []uint32{1001, 49, 50}}, true},
	} {
		if got := m.include(tt.p); got != tt.want {
			t.Errorf("%+v may call: %v", tt.p, got)
		}
	}
	d, stop := daemonAt(t, t.TempDir())
	defer stop()
	if code := ask(t, d, "GET", "/v1/sandboxes", nil, nil); code != http.StatusOK {
		t.Errorf("own user: %d", code)
	}
	strict := &control{d: d, may: callers{uids: []uint32{4000000}, gid: 4000000}, path: filepath.Join(t.TempDir(), "control.sock")}
	l, err := net.Listen("unix", strict.path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: strict.permitted(strict.routes()), ConnContext: withPeer}
	go server.Serve(l)
	defer server.Close()
	var e apiError
	for _, path := range []string{"/v1/sandboxes", "/healthz"} {
		if code := ask(t, &daemonProcess{control: strict}, "GET", path, nil, &e); code != http.StatusForbidden {
			t.Errorf("another user at %s: %d", path, code)
		}
	}
}

// TestFaultsByFlag: who narrows by the command is told of flags, and of each
// fault once.
func TestFaultsByFlag(t *testing.T) {
	for pointer, want := range map[string]string{"/ttl": "--ttl", "/only/0": "--only", "/methods/1": "--method", "/parent": "--parent"} {
		if got := (apiFault{Pointer: pointer}).flag(); got != want {
			t.Errorf("%s: %s, want %s", pointer, got, want)
		}
	}
	fault := apiFault{Pointer: "/ttl", Detail: `"soon" is no duration`}
	b, err := json.Marshal(refusedNarrowing([]apiFault{fault}))
	if err != nil {
		t.Fatal(err)
	}
	err = (&controlFlags{}).failure(&http.Response{Status: "422"}, b)
	if want := `the sandbox cannot be narrowed to this; nothing was made: --ttl: "soon" is no duration`; err == nil || err.Error() != want {
		t.Errorf("the error is %v", err)
	}
}
