package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/policy"
)

// policyRepository is an origin with a checkout of it that a daemon follows.
type policyRepository struct {
	t                *testing.T
	origin, checkout string
}

func newRepository(t *testing.T) *policyRepository {
	t.Helper()
	dir := t.TempDir()
	r := &policyRepository{t, filepath.Join(dir, "origin"), filepath.Join(dir, "checkout")}
	r.run("", "init", "-q", "-b", "main", r.origin)
	r.write("policy.d/ci.hcl", `sandbox "ci" {
  allow "one.test" {}
}
`)
	r.commit()
	r.run("", "clone", "-q", r.origin, r.checkout)
	return r
}

func (r *policyRepository) run(dir string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.test")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *policyRepository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.origin, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *policyRepository) commit(args ...string) string {
	r.t.Helper()
	r.run(r.origin, "add", "-A")
	r.run(r.origin, append(args, "commit", "-q", "--allow-empty", "-m", "change")...)
	return r.run(r.origin, "rev-parse", "HEAD")
}

// follow is a stack that follows the repository.
func (r *policyRepository) follow(signed bool) (*stack, *gitPolicy) {
	r.t.Helper()
	state := filepath.Join(r.t.TempDir(), "state")
	s := settings{state: state, own: state, log: hclog.NewNullLogger()}
	g, err := newGitPolicy(gitPolicyBlock{Path: r.checkout, Dir: "policy.d", Signed: signed}, s)
	if err != nil {
		r.t.Fatal(err)
	}
	s.policy = []string{g.current()}
	st, err := build(s)
	if err != nil {
		r.t.Fatal(err)
	}
	st.commit = g.commit
	r.t.Cleanup(func() {
		if err := st.close(); err != nil {
			r.t.Error(err)
		}
	})
	return st, g
}

func TestPolicyFollowsCommits(t *testing.T) {
	r := newRepository(t)
	first := r.run(r.origin, "rev-parse", "HEAD")
	st, g := r.follow(false)
	if err := g.begin(t.Context()); err != nil || g.commit() != first {
		t.Fatal(err, g.commit())
	}
	if diags := st.reload(); diags.HasErrors() {
		t.Fatal(diags.Err())
	}
	d := &daemonProcess{stack: st}
	allowed := func(host string) bool {
		return st.gateway.Policy().CheckNarrowing("ci", policy.NarrowingSpec{Only: []string{host}}, time.Now()) == nil
	}
	if !allowed("one.test") || allowed("two.test") {
		t.Fatal("the first commit is not in force")
	}
	step := func(name string, wantChanged, wantErr bool, commit string) {
		t.Helper()
		changed, err := d.advance(t.Context(), g)
		if changed != wantChanged || (err != nil) != wantErr || g.commit() != commit {
			t.Errorf("%s: changed %v, %v, at %s, want %s", name, changed, err, g.commit(), commit)
		}
	}
	step("nothing new", false, false, first)
	r.write("policy.d/ci.hcl", "sandbox \"ci\" {\n  allow \"two.test\" {}\n}\n")
	second := r.commit()
	step("a change", true, false, second)
	if allowed("one.test") || !allowed("two.test") {
		t.Error("the second commit is not in force")
	}
	for _, commit := range []string{first, second} {
		if !recordedCommit(t, filepath.Join(st.own, "audit"), commit) {
			t.Errorf("no record of the policy has commit %s", commit)
		}
	}
	r.write("policy.d/more.hcl", "sandbox \"cj\" {\n  allow \"**\" {}\n}\n")
	r.commit()
	step("an error in one file", false, true, second)
	step("the same error", false, false, second)
	if !allowed("two.test") || st.gateway.Policy().Sandbox("cj") != nil {
		t.Error("a broken commit changed what is in force")
	}
	if err := os.Remove(filepath.Join(r.origin, "policy.d/more.hcl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(r.origin, "policy.d/link.hcl")); err != nil {
		t.Fatal(err)
	}
	r.commit()
	step("a link", false, true, second)
	if n := recordedRefusals(t, filepath.Join(st.own, "audit")); n != 2 {
		t.Errorf("%d refusals of a policy are on record, want 2", n)
	}
	// What lies in the checkout is not the policy.
	if err := os.WriteFile(filepath.Join(r.checkout, "policy.d/ci.hcl"), []byte("sandbox \"ci\" {\n  allow \"evil.test\" {}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if diags := st.reload(); diags.HasErrors() || allowed("evil.test") {
		t.Error("a file of the checkout is in force")
	}
	// Without the remote the daemon starts with what it had.
	if err := os.RemoveAll(r.origin); err != nil {
		t.Fatal(err)
	}
	step("no remote", false, true, second)
	if err := g.begin(t.Context()); err != nil {
		t.Errorf("start without the remote: %v", err)
	}
}

func TestPolicyRefusesUnsignedCommits(t *testing.T) {
	r := newRepository(t)
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key+".signers", append([]byte("a@example.test "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	r.run(r.checkout, "config", "gpg.format", "ssh")
	r.run(r.checkout, "config", "gpg.ssh.allowedSignersFile", key+".signers")
	st, g := r.follow(true)
	if err := g.begin(t.Context()); err == nil || g.commit() != "" {
		t.Fatalf("an unsigned commit was taken: %v", err)
	}
	sign := []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + key, "-c", "commit.gpgSign=true"}
	signed := r.commit(sign...)
	if err := g.begin(t.Context()); err != nil || g.commit() != signed {
		t.Fatalf("a signed commit was not taken: %v", err)
	}
	r.commit()
	if changed, err := st.advance(t.Context(), g); changed || err == nil || g.commit() != signed {
		t.Errorf("an unsigned commit after it: %v %v", changed, err)
	}
	r.run(r.origin, "reset", "-q", "--hard", signed+"~1")
	r.write("other", "another history")
	r.commit(sign...)
	if changed, err := st.advance(t.Context(), g); changed || err == nil || !strings.Contains(err.Error(), "follow") {
		t.Errorf("a signed commit that does not follow: %v %v", changed, err)
	}
}

func TestGitPolicyBlock(t *testing.T) {
	for _, b := range []gitPolicyBlock{
		{Path: "/x", Branch: "--upload-pack=x"}, {Path: "/x", Branch: "a:b"}, {Path: "/x", Dir: "../.."}, {Path: "/x", Dir: "/etc"},
		{Path: "/x", Every: "soon"}, {Path: "/x", Every: "1s"},
	} {
		if _, err := newGitPolicy(b, settings{log: hclog.NewNullLogger()}); err == nil {
			t.Errorf("%+v was taken", b)
		}
	}
}
