package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport/audit"
)

// TestContainerThatHasJustEndedIsNotRefused: an engine says for a moment that a
// container runs whose process has ended. It is not one that is turned away.
func TestContainerThatHasJustEndedIsNotRefused(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "engine.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/images/") {
			fmt.Fprint(w, `{"Config": {"Labels": {}}}`)
			return
		}
		status, running := "running", true
		if asked.Add(1) > 2 {
			status, running = "exited", false
		}
		fmt.Fprintf(w, `{"Id": "c1", "Name": "/job", "Image": "i1", "State": {"Status": %q, "Running": %v, "Pid": %d},
			"Config": {"Labels": {"sallyport.sandbox": "ci"}}, "HostConfig": {"NetworkMode": "none"}}`, status, running, gone.Process.Pid)
	})}
	go func() { _ = engine.Serve(l) }() // until it is closed
	defer engine.Close()
	d, stop := daemonAt(t, t.TempDir())
	defer stop()
	d.captures.asking = map[string]*bool{}
	newEngineCapture(&d.captures, captureBlock{Name: "containers", Engine: "docker", Socket: socket}).look(context.Background(), "c1")
	if n := asked.Load(); n != 3 {
		t.Errorf("the engine was asked %d times", n)
	}
	for e, err := range audit.Read(context.Background(), []string{filepath.Join(d.settings.own, "audit")}, audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Verdict == "deny" {
			t.Errorf("is recorded: %s", e.Message)
		}
	}
}
