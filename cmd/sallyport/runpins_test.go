package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/secrets"
)

// runLoader is a run's loader under a policy, of which the command can change
// everything in dir that is not in a folder called closed.
type runLoader struct {
	*loader
	t   *testing.T
	dir string
}

func newPinned(t *testing.T, dir, policy string) *runLoader {
	t.Helper()
	p := &runLoader{t: t, dir: dir, loader: &loader{paths: []string{filepath.Join(dir, "policy.hcl")}, key: make([]byte, 32), log: hclog.NewNullLogger(),
		pins: newPins(func(path string) bool { return strings.HasPrefix(path, dir) && !strings.Contains(path, "closed") })}}
	t.Cleanup(p.close)
	p.reload(policy)
	return p
}

func (p *runLoader) reload(policy string) {
	p.t.Helper()
	p.write("policy.hcl", strings.ReplaceAll(policy, "DIR", p.dir))
	snap, diags := p.load()
	if diags.HasErrors() {
		p.t.Fatal(diags.Err())
	}
	p.fetch(snap)
}

// fetch warms a policy and waits for the sources whose program takes longer than
// a load waits for it.
func (p *runLoader) fetch(snap *gateway.Snapshot) {
	p.t.Helper()
	p.warm(snap)
	under := func() (names []string) {
		for _, s := range snap.Secrets.Status() {
			if (s.Name == "KEY" || sourceKinds()[s.Kind].local) && !s.Held && s.Error == "" {
				names = append(names, s.Name)
			}
		}
		return names
	}
	for end := time.Now().Add(60 * time.Second); len(under()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not fetched: %q", under())
		}
	}
}

func (p *runLoader) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o700); err != nil {
		p.t.Fatal(err)
	}
}

// value is what a secret is now, fetched afresh.
func (p *runLoader) value(name string) (out string, err error) {
	ctx := context.Background()
	if err := p.store.Check(ctx, name); err != nil {
		return "", err
	}
	return out, p.store.Use(ctx, name, func(v string) error { out = v; return nil })
}

func secretOf(name, source string) string {
	return "secret \"" + name + "\" {\n  hosts = [\"a.test\"]\n  source " + source + "\n}\n"
}

const pinnedSandbox = "sandbox \"ci\" {\n  allow \"a.test\" { inject = [\"KEY\"] }\n}\n"

// TestProgramsOfARunStayThose: what a run's gateway executes outside the
// sandbox is what was there when the command began, or nothing.
func TestProgramsOfARunStayThose(t *testing.T) {
	const honest, evil = "#!/bin/sh\necho honest-value\n", "#!/bin/sh\ntouch \"$(dirname \"$0\")/escaped\"\necho evil-value\n"
	for name, change := range map[string]func(p *runLoader){
		"written":      func(p *runLoader) { p.write("bin/program", evil) },
		"renamed over": func(p *runLoader) { p.write("bin/next", evil); p.rename("bin/next", "bin/program") },
		"its folder":   func(p *runLoader) { p.rename("bin", "was"); p.mkdir("bin"); p.write("bin/program", evil) },
		"its link":     func(p *runLoader) { p.write("evil", evil); p.link("evil", "link") },
		"removed":      func(p *runLoader) { p.rename("bin/program", "bin/gone") },
	} {
		for _, command := range []string{`["DIR/link"]`, `["/bin/sh", "DIR/link"]`, `["/usr/bin/env", "SCRIPT=DIR/link", "sh", "-c", ". $SCRIPT"]`} {
			t.Run(name+"/"+command, func(t *testing.T) {
				p := &runLoader{t: t, dir: t.TempDir()}
				p.mkdir("bin")
				p.write("bin/program", honest)
				p.link("bin/program", "link")
				policy := secretOf("KEY", `"exec" { command = `+command+` }`) + pinnedSandbox
				p = newPinned(t, p.dir, policy)
				p.pins.seal()
				if v, err := p.value("KEY"); v != "honest-value" || err != nil {
					t.Fatalf("before the change: %q, %v", v, err)
				}
				change(p)
				for _, when := range []string{"at a refresh", "after a reload"} {
					_, err := p.value("KEY")
					if err == nil || !strings.Contains(err.Error(), p.dir+"/link has changed since the run began") {
						t.Errorf("%s: %v", when, err)
					}
					p.reload(policy + secretOf("MORE", `"env" { name = "MORE" }`))
				}
				for _, folder := range []string{"", "bin", "was"} {
					if _, err := os.Stat(filepath.Join(p.dir, folder, "escaped")); err == nil {
						t.Error("the command's program was run outside the sandbox")
					}
				}
			})
		}
	}
}

func (p *runLoader) mkdir(name string) { p.must(os.Mkdir(filepath.Join(p.dir, name), 0o755)) }

func (p *runLoader) rename(from, to string) {
	p.must(os.Rename(filepath.Join(p.dir, from), filepath.Join(p.dir, to)))
}

func (p *runLoader) link(target, name string) {
	next := filepath.Join(p.dir, name+".next")
	p.must(errors.Join(os.Symlink(target, next), os.Rename(next, filepath.Join(p.dir, name))))
}

func (p *runLoader) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestFilesOfARunKeepTheirValue: what the command can change is read once,
// before it begins; the rest is read again as ever.
func TestFilesOfARunKeepTheirValue(t *testing.T) {
	dir := t.TempDir()
	p := &runLoader{t: t, dir: dir}
	p.mkdir("closed")
	p.write("key", "first-value\n")
	p.write("closed/key", "first-value\n")
	p.write("aws", "[default]\naws_access_key_id = AKIAFIRST\naws_secret_access_key = first-value\n")
	policy := secretOf("KEY", `"file" { path = "DIR/key" }`) + secretOf("CLOSED", `"file" { path = "DIR/closed/key" }`) +
		secretOf("LATE", `"file" { path = "DIR/late" }`) + secretOf("AWS", `"aws" { credentials_file = "DIR/aws" }`) + pinnedSandbox
	p = newPinned(t, dir, policy)
	p.pins.seal()
	if _, err := p.value("AWS"); err != nil {
		t.Errorf("before the change: %v", err)
	}
	for name, text := range map[string]string{"key": "other-value", "closed/key": "other-value", "late": "other-value",
		"aws": "[default]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = other-value\n"} {
		p.write(name, text)
	}
	for _, when := range []string{"at a refresh", "after a reload"} {
		for name, want := range map[string]string{"KEY": "first-value", "CLOSED": "other-value"} {
			if v, err := p.value(name); v != want || err != nil {
				t.Errorf("%s: %s is %q, %v", when, name, v, err)
			}
		}
		for name, want := range map[string]string{"LATE": "no value was there when the run began", "AWS": dir + "/aws has changed since the run began"} {
			if _, err := p.value(name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v", when, name, err)
			}
		}
		p.reload(policy + secretOf("NEW", `"exec" { command = ["/bin/cat", "DIR/key"] }`))
	}
	if _, err := p.value("NEW"); err == nil || !strings.Contains(err.Error(), "was not named when the run began") {
		t.Errorf("what a reload names: %v", err)
	}
}

// TestEveryKindOfARunIsHeld: no kind of source reads or runs what the command
// can change without being held to the start.
func TestEveryKindOfARunIsHeld(t *testing.T) {
	p := newPins(func(path string) bool { return strings.HasPrefix(path, "/reach/") })
	for name, a := range map[string]attributes{
		"file":        {"path": "/reach/a"},
		"exec":        {"command": []string{"/reach/a"}},
		"vault":       {"address": "https://vault.test", "path": "a/b", "token_file": "/reach/a"},
		"awssm":       {"id": "a", "region": "eu-west-1", "credentials_file": "/reach/a"},
		"aws":         {"credentials_file": "/reach/a"},
		"oauth2":      {"token_url": "https://a.test/", "client_id": "a", "client_secret_file": "/reach/a"},
		"github_app":  {"app_id": "1", "installation_id": int64(1), "key_file": "/reach/a"},
		"gcp_jwt":     {"key_file": "/reach/a", "audience": "https://a.test/"},
		"client_cert": {"cert_file": "/reach/a"},
		"age":         {"path": "/elsewhere/a", "identity": "/reach/a"},
		"env":         {"name": "KEY"},
	} {
		src, err := p.source(name, a)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		switch src.(type) {
		case *keptSource, *pinnedSource:
		default:
			if name != "env" {
				t.Errorf("%s is a %T", name, src)
			}
		}
		if _, watched := src.(secrets.Watcher); watched {
			t.Errorf("%s is watched", name)
		}
	}
	for name := range sourceKinds() {
		if !strings.Contains("file exec vault awssm aws oauth2 github_app gcp_jwt client_cert age env", name) {
			t.Errorf("%s is not tried", name)
		}
	}
}

// TestSinkOfARunStaysThat: the program that takes notices is that of the start.
func TestSinkOfARunStaysThat(t *testing.T) {
	dir := t.TempDir()
	program, told := filepath.Join(dir, "notify"), filepath.Join(dir, "told")
	write := func(text string) {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+text+" > "+told+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("echo honest")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	p := newPins(func(string) bool { return true })
	sink, err := sinkKinds()["exec"].open(attributes{"command": []string{"notify"}}, sinkSecrets{pins: p})
	if err != nil {
		t.Fatal(err)
	}
	p.seal()
	if err := sink.Send(t.Context(), audit.Alert{}); err != nil {
		t.Fatal(err)
	}
	write("echo evil")
	if err := sink.Send(t.Context(), audit.Alert{}); err == nil || !audit.IsPermanent(err) || !strings.Contains(err.Error(), program+" has changed since the run began") {
		t.Errorf("changed: %v", err)
	}
	if b, err := os.ReadFile(told); string(b) != "honest\n" || err != nil {
		t.Errorf("told %q, %v", b, err)
	}
}

// TestMarkSeesAMapping: a file that is written through a mapping is another
// one, also where that changes none of its times.
func TestMarkSeesAMapping(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		f, err := os.CreateTemp(dir, "mark")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(f.Name())
		defer f.Close()
		if _, err := f.WriteString("honest"); err != nil {
			t.Fatal(err)
		}
		mapped, err := syscall.Mmap(int(f.Fd()), 0, 6, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		mapped[0] = 'h'
		was := markOf(f.Name())
		if markOf(f.Name()) != was || was == (mark{}) {
			t.Errorf("%s: the same file is another one", dir)
		}
		copy(mapped, "evil!!")
		if markOf(f.Name()) == was {
			t.Errorf("%s: a file that was written is the same", dir)
		}
		if err := syscall.Munmap(mapped); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefreshTokenOfARun: a token that the gateway itself has replaced is used
// on, and one that somebody else puts there is not.
func TestRefreshTokenOfARun(t *testing.T) {
	asked := 0
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := fmt.Sprintf("token-%d", asked); r.FormValue("refresh_token") != want {
			t.Errorf("the endpoint was sent %q, want %q", r.FormValue("refresh_token"), want)
		}
		asked++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"access-%d","expires_in":600,"refresh_token":"token-%d"}`, asked, asked)
	}))
	defer endpoint.Close()
	p := &runLoader{t: t, dir: t.TempDir()}
	p.write("token", "token-0\n")
	p = newPinned(t, p.dir, secretOf("KEY", `"oauth2" {
    token_url          = "`+endpoint.URL+`"
    client_id          = "id"
    grant              = "refresh_token"
    refresh_token_file = "DIR/token"
  }`)+pinnedSandbox)
	p.pins.seal()
	for range 3 {
		if _, err := p.value("KEY"); err != nil {
			t.Fatal(err)
		}
	}
	p.write("token", "token-of-another\n")
	if _, err := p.value("KEY"); err == nil || !strings.Contains(err.Error(), p.dir+"/token has changed since the run began") {
		t.Errorf("%v", err)
	}
}
