package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"sallyport/gateway/capture"
)

// TestWhatIsTakenSaysSo: a state folder that is another user's or another
// gateway's, and a namespace that is attached already, are refused with what
// to do.
func TestWhatIsTakenSaysSo(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign")
	if err := errors.Join(os.Mkdir(foreign, 0o700), os.Chown(foreign, os.Geteuid()+1, -1)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{foreign: "belongs to user", filepath.Join(dir, "new"): ""} {
		err := makeState(path)
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(hintOf(err), "chown")) {
			t.Errorf("%s: %v (%s)", path, err, hintOf(err))
		}
	}
	d, stop := daemonAt(t, dir, capture.OpenNamespace)
	defer stop()
	second, err := build(settings{state: d.settings.state, own: d.own, log: hclog.NewNullLogger()})
	if second != nil || err == nil || !strings.Contains(err.Error(), "another sallyport uses it") || hintOf(err) == "" {
		t.Errorf("a second gateway on the same state: %v (%s)", err, hintOf(err))
	}
	ns := newNamespace(t)
	first, err := pass(d, ns, apiAttach{Sandbox: "ci", NetNSFD: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pass(d, ns, apiAttach{Sandbox: "prod", NetNSFD: true}); err == nil || !strings.Contains(err.Error(), "sallyport sandbox rm "+first.ID) {
		t.Errorf("a namespace that is attached already: %v", err)
	}
	if err := d.captures.detach(first.ID); err != nil {
		t.Error(err)
	}
}
