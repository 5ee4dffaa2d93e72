//go:build linux

package e2e_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sallyport/test/lab"
)

// covered is a needle as the probe takes it: it must not hold what it looks
// for.
func covered(name, text string) string {
	b := []byte(text)
	for i := range b {
		b[i] ^= 0x5a
	}
	return name + "=" + hex.EncodeToString(b)
}

// vault is where the secrets of one run of TestP3 are kept.
type vault struct {
	dir    string // of the source file, the mint and the host's socket
	values map[string]string
	policy string
}

// newVault lays out secrets from all sources, for uid to read.
func newVault(t *testing.T, uid int, domain string) vault {
	t.Helper()
	v := vault{values: map[string]string{}}
	v.dir = filepath.Join(world.lab.Dir, world.lab.Unique("vault"))
	for _, kind := range []string{"ENV", "FILE", "EXEC", "SOCKET"} {
		v.values[kind] = "REAL-" + strings.ToLower(kind) + "-" + world.lab.Unique("3c9be17a55")
	}
	file := filepath.Join(v.dir, "key")
	must(t, errors.Join(os.Mkdir(v.dir, 0o755),
		os.WriteFile(file, []byte(v.values["FILE"]), 0o400), os.Chown(file, uid, uid),
		os.Chown(v.dir, uid, uid)))
	v.policy = fill(fmt.Sprintf(`
secret "KEY_ENV" {
  hosts = ["%[1]s"]
  source "env" { name = "REAL_KEY" }
}
secret "KEY_FILE" {
  hosts = ["%[1]s"]
  source "file" { path = %[2]q }
}
secret "KEY_EXEC" {
  hosts = ["%[1]s"]
  source "exec" {
    command = ["/bin/sh", "-c", "printf %%s $MINT"]
    env     = ["MINT"]
  }
}
sandbox "dev" {
  allow "%[1]s" {
    addresses = DOCS
    inject    = ["KEY_ENV", "KEY_FILE", "KEY_EXEC"]
  }
}
`, domain, file))
	return v
}

// listen hands the value of SOCKET to whoever connects to a socket of the
// host: one in the file system and one in the abstract namespace.
func (v vault) listen(t *testing.T) (names []string) {
	t.Helper()
	path := filepath.Join(v.dir, "agent.sock")
	names = []string{path, "@" + filepath.Base(v.dir)}
	for _, name := range names {
		var ln net.Listener
		must(t, world.lab.GW.Do(func() (err error) { ln, err = net.Listen("unix", name); return err }))
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, v.values["SOCKET"]) // the searcher may have gone
				_ = c.Close()
			}
		}()
	}
	must(t, os.Chmod(path, 0o777))
	return names
}

// TestP3SecretNeverInside: code that runs as the same user, and then as root
// of namespaces of its own inside, looks for the real values in environments,
// in the memory of every process, in files, in the state folder and in the
// sockets of the host. SEC-32, AUD-02.
func TestP3SecretNeverInside(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) { p3Search(t, user, uid) })
	}
}

func p3Search(t *testing.T, user string, uid int) {
	l := begin(t)
	host := "p3-" + user + ".p3.test"
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "received") }))
	v := newVault(t, uid, host)
	sockets := v.listen(t)
	state := filepath.Join(v.dir, "state")
	must(t, os.Mkdir(state, 0o700))
	key := authorityKey(t, state, uid)
	marker := "PLANTED-" + l.Unique("marker")

	args := covered("MARKER", marker) + " " + covered("CAKEY", key)
	for kind, text := range v.values {
		args += " " + covered(kind, text)
	}
	o := withKey(uid, v.policy, "sh", "-c", `
for k in "$KEY_ENV" "$KEY_FILE" "$KEY_EXEC"; do curl -sS https://`+host+`/ -H "Authorization: Bearer $k"; echo; done
PLANTED=`+marker+` sleep 600 & echo `+marker+` >planted
`+world.probe+` search `+args+` -- "$HOME" `+v.dir+` `+state+` `+l.Dir+`; kill %1`)
	o.State = state
	o.Env = []string{"REAL_KEY=" + v.values["ENV"], "COPY_OF_REAL=Bearer " + v.values["ENV"], "MINT=" + v.values["EXEC"], "PROBE_SOCKETS=" + strings.Join(sockets, " ")}
	o.Flags = []string{"--share", world.tools, "--share", v.dir, "--log-level", "trace", "--quiet"}
	r := l.Run(t, o)
	if strings.Count(r.Stdout, "received\n") != 3 || strings.Count(r.Stdout, "SEARCHED") != 2 {
		t.Fatalf("exit %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
	}
	for line := range strings.Lines(r.Stdout) {
		if strings.HasPrefix(line, "FOUND") && !strings.HasPrefix(line, "FOUND MARKER") {
			t.Error(strings.TrimSpace(line))
		}
	}
	for _, where := range []string{"/environ", "planted", "/mem"} {
		if !strings.Contains(r.Stdout, "FOUND MARKER") || !strings.Contains(r.Stdout, where) {
			t.Errorf("the search did not find what was planted in %s: %q", where, r.Stdout)
		}
	}
	p3Received(t, host, v)
	p3Logs(t, r, v)
}

// authorityKey makes the CA in a state folder, and returns a line of its key.
func authorityKey(t *testing.T, state string, uid int) string {
	t.Helper()
	if out, err := exec.Command(world.lab.Binary, "ca", "init", "--state", state).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for path := range tree(t, state) {
		must(t, os.Chown(path, uid, uid))
	}
	must(t, os.Chown(state, uid, uid))
	b, err := os.ReadFile(filepath.Join(state, "ca.key"))
	must(t, err)
	lines := strings.Split(string(b), "\n")
	if len(lines) < 3 || len(lines[1]) < 40 {
		t.Fatalf("the key has %d lines", len(lines))
	}
	return lines[1]
}

// p3Received holds that the values were in use: the search could have found
// them.
func p3Received(t *testing.T, host string, v vault) {
	t.Helper()
	var all string
	for _, q := range origin(host).Requests() {
		all += strings.Join(q.Header["Authorization"], "\n") + "\n"
	}
	for _, kind := range []string{"ENV", "FILE", "EXEC"} {
		if !strings.Contains(all, "Bearer "+v.values[kind]+"\n") {
			t.Errorf("the origin did not receive the value from %s: %q", kind, all)
		}
	}
}

// p3Logs holds that what the gateway wrote has no value either.
func p3Logs(t *testing.T, r *lab.Run, v vault) {
	t.Helper()
	written := tree(t, r.State)
	written["stderr"] = []byte(r.Stderr)
	delete(written, filepath.Join(r.State, "ca.key"))
	for path, b := range written {
		for kind, text := range v.values {
			if bytes.Contains(b, []byte(text)) {
				t.Errorf("%s has the value from %s", path, kind)
			}
		}
	}
}

// TestP3NoCoreDump: a gateway that crashes leaves no memory behind, neither in
// a core file nor in what it prints.
func TestP3NoCoreDump(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			host := "core-" + user + ".p3.test"
			v := newVault(t, uid, host)
			o := withKey(uid, v.policy, "sh", "-c", `curl -sS -o /dev/null https://`+host+`/ -H "Authorization: Bearer $KEY_ENV"; touch ready; sleep 600`)
			o.Env = []string{"REAL_KEY=" + v.values["ENV"], "MINT=" + v.values["EXEC"], "GOTRACEBACK=crash"}
			r := l.Begin(t, o)
			if !lab.Within(lab.StartTime, func() bool { _, err := os.Stat(filepath.Join(r.Dir(), "ready")); return err == nil }) {
				t.Fatal("the command did not come so far")
			}
			must(t, r.Kill(syscall.SIGABRT))
			r.Wait(t)
			left := tree(t, filepath.Dir(r.Dir()))
			left["stderr"] = []byte(r.Stderr)
			for path, b := range left {
				if strings.Contains(filepath.Base(path), "core") || bytes.Contains(b, []byte(v.values["ENV"])) {
					t.Errorf("%s of %d bytes has the value or is a core file", path, len(b))
				}
			}
			if len(origin(host).Requests()) == 0 {
				t.Error("the origin saw no request")
			}
		})
	}
}

// TestP3GatewayCannotBeRead: a process of the same user outside the sandbox,
// which sees the gateway's process, cannot read what is in it either.
func TestP3GatewayCannotBeRead(t *testing.T) {
	l := begin(t)
	const host = "outside.p3.test"
	v := newVault(t, lab.Nobody, host)
	o := withKey(lab.Nobody, v.policy, "sh", "-c", `curl -sS -o /dev/null https://`+host+`/ -H "Authorization: Bearer $KEY_ENV"; touch ready; sleep 600`)
	o.Env = []string{"REAL_KEY=" + v.values["ENV"], "MINT=" + v.values["EXEC"]}
	b := l.Begin(t, o)
	if !lab.Within(lab.StartTime, func() bool { _, err := os.Stat(filepath.Join(b.Dir(), "ready")); return err == nil }) {
		t.Fatal("the command did not come so far")
	}
	marker := "PLANTED-" + l.Unique("marker")
	planted := exec.Command("sleep", "600")
	planted.Env = []string{"PLANTED=" + marker}
	search := exec.Command(world.probe, "search", covered("ENV", v.values["ENV"]), covered("EXEC", v.values["EXEC"]), covered("MARKER", marker))
	var out strings.Builder
	search.Stdout, search.Stderr = &out, &out
	for _, cmd := range []*exec.Cmd{planted, search} {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: lab.Nobody, Gid: lab.Nobody}}
		must(t, l.GW.Start(cmd))
	}
	if err := search.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	_ = planted.Process.Kill()
	_ = planted.Wait() // killed
	if !strings.Contains(out.String(), "FOUND MARKER in /proc/") {
		t.Errorf("the search did not find what was planted: %s", &out)
	}
	for _, name := range []string{"FOUND ENV", "FOUND EXEC"} {
		if strings.Contains(out.String(), name) {
			t.Errorf("%s: %s", name, &out)
		}
	}
	if len(origin(host).Requests()) == 0 {
		t.Error("the origin saw no request")
	}
}
