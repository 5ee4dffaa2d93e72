//go:build linux

package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/test/lab"
)

// inForce counts the times that a policy was put in force.
func inForce(events []*audit.Event) (n int) {
	for _, e := range events {
		if e.Kind == audit.KindPolicy && e.Message == "policy in force" {
			n++
		}
	}
	return n
}

// ownFolder makes a folder of a user, and files in it.
func ownFolder(t *testing.T, uid int, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(world.lab.Dir, world.lab.Unique("own"))
	must(t, os.Mkdir(dir, 0o755))
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		must(t, os.Chown(filepath.Join(dir, name), uid, uid))
	}
	must(t, os.Chown(dir, uid, uid))
	return dir
}

// TestRunHoldsItsPolicy: a command that writes into its own policy widens
// nothing, neither at once nor when it is looked at again, and not by a SIGHUP
// either.
func TestRunHoldsItsPolicy(t *testing.T) {
	const narrow = "group \"own\" {\n  allow \"narrow.own.test\" {}\n}\n"
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			dir := ownFolder(t, uid, map[string]string{"own.hcl": narrow})
			own := filepath.Join(dir, "own.hcl")
			o := withKey(uid, "sandbox \"dev\" { use = [\"own\"] }\n", "sh", "-c",
				`sed -i s/narrow.own.test/wide.own.test/ "$0" && grep -q wide "$0" && trap '' HUP && kill -HUP 0 && sleep 5; getent hosts wide.own.test`, own)
			o.Flags = append(o.Flags, "--policy", own, "--share", dir, "--denied", "nxdomain")
			r := l.Run(t, o)
			if b, err := os.ReadFile(own); err != nil || !strings.Contains(string(b), "wide") {
				t.Fatalf("the command did not write its policy: %q, %v; %s", b, err, r.Stderr)
			}
			if r.Code == 0 || strings.Contains(r.Stdout, "wide") {
				t.Errorf("the command has widened its policy: %q %q", r.Stdout, r.Stderr)
			}
			if n := inForce(r.Events(t)); n != 1 {
				t.Errorf("a policy was put in force %d times", n)
			}
			if !has(r.Events(t), "dns deny host_not_allowed wide.own.test") {
				t.Errorf("no name was denied: %q", r.Decisions(t))
			}
		})
	}
}

// TestRunFollowsAPolicyOfOthers: a policy that the command cannot change is
// put in force anew when it changes.
func TestRunFollowsAPolicyOfOthers(t *testing.T) {
	l := begin(t)
	dir := ownFolder(t, 0, map[string]string{"others.hcl": "group \"others\" {}\n"})
	others, mark := filepath.Join(dir, "others.hcl"), ownFolder(t, lab.Nobody, nil)
	o := withKey(lab.Nobody, "sandbox \"dev\" { use = [\"others\"] }\n", "sh", "-c",
		`touch "$0/begun"; for i in $(seq 900); do getent hosts follow.own.test && exit 0; sleep 0.1; done; exit 9`, mark)
	o.Flags = append(o.Flags, "--policy", others, "--share", mark, "--denied", "nxdomain")
	go func() {
		lab.Within(lab.StartTime, func() bool { _, err := os.Stat(filepath.Join(mark, "begun")); return err == nil })
		_ = os.WriteFile(others, []byte("group \"others\" {\n  allow \"follow.own.test\" {}\n}\n"), 0o644) // else the command ends with 9
	}()
	r := l.Run(t, o)
	if n := inForce(r.Events(t)); r.Code != 0 || n != 2 {
		t.Errorf("exit %d, in force %d times: %q", r.Code, n, r.Stderr)
	}
}

// TestRunSendsNothingThatItShows: a secret whose file or variable a reload is
// the first to name, and which the command has read, is not sent.
func TestRunSendsNothingThatItShows(t *testing.T) {
	const shown = "SHOWN-9c41d7a2e6b05f38"
	l := begin(t)
	host := "late.own.test"
	dir := ownFolder(t, 0, map[string]string{"others.hcl": keyed("own.test"), "key": shown})
	others, mark := filepath.Join(dir, "others.hcl"), ownFolder(t, lab.Nobody, nil)
	o := withKey(lab.Nobody, "group \"none\" {}\n", "sh", "-c", `touch "$0/begun"; for i in $(seq 900); do getent hosts follow.late.test && break; sleep 0.1; done
cat "$1"; echo " $LATE_KEY"
curl -sS https://HOST/file -H 'X-Api-Key: $FROM_FILE'; curl -sS https://HOST/env -H 'X-Api-Key: $FROM_ENV'`, mark, filepath.Join(dir, "key"))
	o.Argv[2] = strings.ReplaceAll(o.Argv[2], "HOST", host)
	o.Flags = append(o.Flags, "--policy", others, "--share", mark, "--share", dir, "--denied", "nxdomain")
	o.Env = append(o.Env, "LATE_KEY="+shown)
	next := keyed("own.test")
	for name, source := range map[string]string{"FROM_FILE": `"file" { path = "` + filepath.Join(dir, "key") + `" }`, "FROM_ENV": `"env" { name = "LATE_KEY" }`} {
		next += "secret \"" + name + "\" {\n  hosts = [\"*.own.test\"]\n  source " + source + "\n}\n"
	}
	next = strings.Replace(next, `inject    = ["API_KEY"]`, `inject    = ["API_KEY", "FROM_FILE", "FROM_ENV"]`, 1)
	next = strings.Replace(next, "sandbox \"dev\" {", "sandbox \"dev\" {\n  allow \"follow.late.test\" {}", 1)
	go func() {
		lab.Within(lab.StartTime, func() bool { _, err := os.Stat(filepath.Join(mark, "begun")); return err == nil })
		_ = os.WriteFile(others, []byte(next), 0o644) // else no name is found, and inForce tells
	}()
	r := l.Run(t, o)
	if n := inForce(r.Events(t)); n != 2 || !strings.Contains(r.Stdout, shown+" "+shown) {
		t.Fatalf("in force %d times: %q %q", n, r.Stdout, r.Stderr)
	}
	if raw := origin(host).Raw(); strings.Contains(string(raw), shown) {
		t.Errorf("the origin has it: %q", raw)
	}
	if n := strings.Count(strings.Join(r.Decisions(t), "\n")+"\n", "http deny secret_unavailable "+host+"\n"); n != 2 {
		t.Errorf("%d requests were refused for their secret: %q", n, r.Decisions(t))
	}
}

// TestRunShowsNoCopyOfAValue: neither in the environment of the command, from
// whatever source the value is, nor in the records of the command line.
func TestRunShowsNoCopyOfAValue(t *testing.T) {
	const text, word = "REAL-Copied-5e81c0d7a9", "correcthorse"
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			dir := ownFolder(t, uid, map[string]string{"file": text, "word": word})
			policy := strings.NewReplacer("DIR", dir).Replace(`
secret "A_FILE" {
  hosts = ["copy.own.test"]
  source "file" { path = "DIR/file" }
}
secret "A_COMMAND" {
  hosts = ["copy.own.test"]
  source "exec" { command = ["/bin/cat", "DIR/word"] }
}
sandbox "dev" {
  allow "copy.own.test" { inject = ["A_FILE", "A_COMMAND"] }
}
`)
			encoded := base64.StdEncoding.EncodeToString([]byte("user:" + text))
			argv := []string{"sh", "-c", "env; pwd", "--token=" + text, word, "Basic " + encoded, "plain"}
			o := withKey(uid, policy, argv...)
			o.Env = append(o.Env, "COPY=Bearer "+text, "CODED="+encoded, "WORD="+word, "PLAIN=plain")
			r := l.Run(t, o)
			for _, value := range []string{text, encoded, word} {
				if strings.Contains(r.Stdout, value) {
					t.Errorf("%s is in the environment", value)
				}
				for _, e := range r.Events(t) {
					b, err := json.Marshal(e)
					must(t, err)
					if strings.Contains(string(b), value) {
						t.Errorf("%s is in a record: %s", value, b)
					}
				}
			}
			if !strings.Contains(r.Stdout, "PLAIN=plain") {
				t.Errorf("%q", r.Stdout)
			}
			start, end := lifeOf(t, r)
			for _, e := range []*audit.Event{start, end} {
				if len(e.Run.Argv) != len(argv) || e.Run.Argv[6] != "plain" || e.Run.Argv[4] != strings.Repeat("*", len(word)) {
					t.Errorf("%s: %q", e.Message, e.Run.Argv)
				}
			}
		})
	}
}
