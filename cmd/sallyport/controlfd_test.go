package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/gateway/capture"
)

// newNamespace is a network namespace that nobody is in.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	var f *os.File
	var err error
	onOwnThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// pass makes a call with a descriptor, as the command does.
func pass(d *daemonProcess, f *os.File, in apiAttach) (apiSandbox, error) {
	c := controlFlags{socket: d.control.path, pass: f}
	var out apiSandbox
	err := c.call(http.MethodPost, "/v1/sandboxes", in, &out)
	return out, err
}

// TestNamespaceIsPassed attaches a namespace whose descriptor came with the
// call, which nobody but the daemon holds afterwards.
func TestNamespaceIsPassed(t *testing.T) {
	dir := t.TempDir()
	d, stop := daemonAt(t, dir, capture.OpenNamespace)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	mounts, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer mounts.Close()
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for name, tt := range map[string]struct {
		f    *os.File
		in   apiAttach
		want string
	}{
		"nothing":                   {nil, apiAttach{Parent: "ci", NetNSFD: true}, "no descriptor was passed"},
		"a device":                  {null, apiAttach{Parent: "ci", NetNSFD: true}, "not a network namespace"},
		"a namespace of mounts":     {mounts, apiAttach{Parent: "ci", NetNSFD: true}, "not a network namespace"},
		"the gateway's own":         {own, apiAttach{Parent: "ci", NetNSFD: true}, "gateway's own"},
		"named in another way":      {own, apiAttach{Parent: "ci", NetNSFD: true, PID: 1}, "give one of them"},
		"what the parent has not":   {newNamespace(t), apiAttach{Parent: "ci", NetNSFD: true, Only: []string{"prod.test"}}, "prod.test"},
		"passed and not spoken for": {newNamespace(t), apiAttach{Parent: "ci"}, "give one of netns, pid and netns_fd"},
	} {
		if out, err := pass(d, tt.f, tt.in); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v %v", name, out, err)
		}
	}
	if pins := pinned(t, dir); len(pins) != 0 {
		t.Errorf("held although refused: %q", pins)
	}

	ns := newNamespace(t)
	cookie, err := capture.NamespaceCookie("/proc/self/fd/" + itoa(ns))
	if err != nil {
		t.Fatal(err)
	}
	made, err := pass(d, ns, apiAttach{Parent: "ci", Name: "job-1", Only: []string{"api.test"}, NetNSFD: true, TTL: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	short, err := pass(d, newNamespace(t), apiAttach{Parent: "ci", NetNSFD: true, TTL: "1s"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	if !allows(d, made.ID, "GET", "api.test") || allows(d, made.ID, "GET", "x.wild.test") {
		t.Error("it is not narrowed to what was asked")
	}
	awaitGone(t, d, short.ID)
	stop()
	d, stop = daemonAt(t, dir)
	defer stop()
	if !allows(d, made.ID, "GET", "api.test") {
		t.Fatal("it is gone after a restart")
	}
	d.captures.endGone()
	pins := pinned(t, dir)
	if len(pins) != 1 || d.sandboxes.ByID(made.ID) == nil {
		t.Fatalf("held after a restart: %q", pins)
	}
	if c, err := capture.NamespaceCookie(pins[0]); err != nil || c != cookie {
		t.Errorf("what is held is another namespace: %d, not %d: %v", c, cookie, err)
	}
	var code int
	if code = ask(t, d, http.MethodDelete, "/v1/sandboxes/"+made.ID, nil, nil); code != http.StatusNoContent {
		t.Errorf("rm: %d", code)
	}
	if pins := pinned(t, dir); len(pins) != 0 {
		t.Errorf("held after its end: %q", pins)
	}
}

// TestRightsConnEnds: a connection that is closed while it is read ends with an
// error and without bytes.
func TestRightsConnEnds(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := rightsListener{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func itoa(f *os.File) string {
	return strconv.Itoa(int(f.Fd()))
}

// pinned are the namespaces that a daemon holds.
func pinned(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, pinDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func awaitGone(t *testing.T, d *daemonProcess, id string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if d.sandboxes.ByID(id) == nil {
			if _, open := d.captures.attachedAt(id); !open {
				return
			}
		}
	}
	t.Fatalf("%s does not end", id)
}
