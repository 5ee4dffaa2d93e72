package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/policy/policyfile"
)

// gitPolicyBlock is a policy that is followed by commit: policy_git of the
// daemon file.
type gitPolicyBlock struct {
	Path   string `hcl:"path"`            // of a checkout, or of a bare repository, with the remote origin
	Branch string `hcl:"branch,optional"` // default main
	Dir    string `hcl:"dir,optional"`    // folder of the policy in it; default the top
	Every  string `hcl:"every,optional"`  // between two looks; default 1m
	Signed bool   `hcl:"signed,optional"` // refuse a commit that git verify-commit refuses, and one that does not follow the last
}

// gitPolicy follows one branch. What is in force is the tree of one commit,
// copied to a folder of the state; the checkout's own files are never read.
type gitPolicy struct {
	gitPolicyBlock
	every   time.Duration
	into    string // folder with one folder for each commit, and the link to the one in force
	vars    map[string]string
	log     hclog.Logger
	refused string // commit that is not tried again
}

// Bounds of following a branch.
const (
	gitTime     = 2 * time.Minute // one command of git
	minGitEvery = 5 * time.Second
)

// newGitPolicy checks the block.
func newGitPolicy(b gitPolicyBlock, s settings) (*gitPolicy, error) {
	g := &gitPolicy{gitPolicyBlock: b, every: time.Minute, into: filepath.Join(s.own, "policy-git"), vars: s.vars, log: s.log.Named("policy_git")}
	if b.Every != "" {
		var err error
		if g.every, err = duration(b.Every); err != nil || g.every < minGitEvery {
			return nil, fmt.Errorf("every: %q is no duration of at least %s", b.Every, minGitEvery)
		}
	}
	if g.Branch == "" {
		g.Branch = "main"
	}
	if strings.HasPrefix(g.Branch, "-") || strings.ContainsAny(g.Branch, " :*?[\\^~") {
		return nil, fmt.Errorf("branch: %q is none", g.Branch)
	}
	if g.Dir != "" && !filepath.IsLocal(g.Dir) {
		return nil, fmt.Errorf("dir: %q is not a folder in the repository", g.Dir)
	}
	return g, nil
}

// followed makes the policy of s that of a branch, if the file says so, and
// fetches it.
func (d *daemonFile) followed(s *settings) (*gitPolicy, error) {
	g, err := d.follows(s)
	if g == nil || err != nil {
		return nil, err
	}
	return g, g.begin(context.Background())
}

// current is the path of the policy in force: a link to the folder of its commit.
func (g *gitPolicy) current() string { return currentOf(g.into) }

// commit is what is in force, "" before the first.
func (g *gitPolicy) commit() string {
	to, err := os.Readlink(g.current())
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// git runs one command of git in the repository. No hook of it runs.
func (g *gitPolicy) git(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", g.Path, "-c", "core.hooksPath=/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, audit.Escape(text, 300))
	}
	return out, nil
}

// fetch asks the remote and makes the folder of a new commit. It returns ""
// where there is nothing new. What is in force stays whatever happens.
func (g *gitPolicy) fetch(ctx context.Context) (commit string, err error) {
	if _, err := g.git(ctx, "fetch", "--quiet", "--no-tags", "origin", "refs/heads/"+g.Branch); err != nil {
		return "", err
	}
	out, err := g.git(ctx, "rev-parse", "--verify", "FETCH_HEAD^{commit}")
	if err != nil {
		return "", err
	}
	commit = strings.TrimSpace(string(out))
	if commit == g.commit() || commit == g.refused {
		return "", nil
	}
	if err := g.admit(ctx, commit); err != nil {
		if ctx.Err() == nil {
			g.refused = commit
		}
		return "", fmt.Errorf("commit %.12s is not admitted; what was in force stays: %w", commit, err)
	}
	return commit, nil
}

// admit checks a commit and its whole policy, and copies it.
func (g *gitPolicy) admit(ctx context.Context, commit string) error {
	if g.Signed {
		if _, err := g.git(ctx, "verify-commit", commit); err != nil {
			return fmt.Errorf("its signature is not good: %w", err)
		}
		if last := g.commit(); last != "" {
			if _, err := g.git(ctx, "merge-base", "--is-ancestor", last, commit); err != nil {
				return fmt.Errorf("it does not follow %.12s, which is in force", last)
			}
		}
	}
	dir, err := g.copy(ctx, commit)
	if err != nil {
		return err
	}
	o := policyOptions()
	o.Vars = g.vars
	if _, diags := policyfile.LoadSet([]string{dir}, 0, o); diags.HasErrors() {
		return errors.Join(diags.Err(), os.RemoveAll(dir))
	}
	return nil
}

// copy writes the policy of a commit to the folder of that name.
func (g *gitPolicy) copy(ctx context.Context, commit string) (dir string, err error) {
	if err := os.MkdirAll(g.into, 0o700); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(g.into, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	tree := commit + ":"
	if g.Dir != "" {
		tree += filepath.ToSlash(filepath.Clean(g.Dir))
	}
	list, err := g.git(ctx, "ls-tree", "-z", tree)
	if err != nil {
		return "", err
	}
	size := 0
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		about, name, _ := strings.Cut(entry, "\t") // MODE SP TYPE SP ID TAB NAME
		if filepath.Ext(name) != ".hcl" {
			continue
		}
		fields := strings.Fields(about)
		if len(fields) != 3 || !strings.HasPrefix(fields[0], "100") || !filepath.IsLocal(name) || strings.Contains(name, "/") {
			return "", fmt.Errorf("%q is not a regular file", name)
		}
		text, err := g.git(ctx, "cat-file", "blob", fields[2])
		if err != nil {
			return "", err
		}
		if size += len(text); size > policyfile.MaxBytes {
			return "", fmt.Errorf("the policy has more than %d bytes", policyfile.MaxBytes)
		}
		if err := os.WriteFile(filepath.Join(temp, name), text, 0o600); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(g.into, commit)
	return dir, errors.Join(os.RemoveAll(dir), os.Rename(temp, dir))
}

// put makes a commit the current one, "" none.
func (g *gitPolicy) put(commit string) error {
	if commit == "" {
		return os.Remove(g.current())
	}
	return putCurrent(g.into, commit)
}

// begin gets a policy to start with: the newest, or where the remote does not
// answer or its commit is not admitted, the one that was in force.
func (g *gitPolicy) begin(ctx context.Context) error {
	commit, err := g.fetch(ctx)
	if err == nil && commit != "" {
		return g.put(commit)
	}
	if g.commit() == "" {
		return errors.Join(errors.New("policy_git: there is no policy to start with"), err)
	}
	if err != nil {
		g.log.Error("starting with the policy of the last commit", "commit", g.commit(), "error", err)
	}
	return nil
}

// followGit puts new commits in force until ctx ends. then runs after each.
func (st *stack) followGit(ctx context.Context, g *gitPolicy, then func()) error {
	if g == nil {
		return nil
	}
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		changed, err := st.advance(ctx, g)
		if err != nil && ctx.Err() == nil {
			g.log.Error("policy was not followed", "error", err)
		}
		if changed {
			then()
		}
	}
}

// advance puts the newest commit in force, all of it or nothing.
func (st *stack) advance(ctx context.Context, g *gitPolicy) (changed bool, err error) {
	old, refused := g.commit(), g.refused
	commit, err := g.fetch(ctx)
	if g.refused != refused && err != nil {
		st.refused(err.Error())
	}
	if err != nil || commit == "" {
		return false, err
	}
	if err := g.put(commit); err != nil {
		return false, err
	}
	if diags := st.reload(); diags.HasErrors() {
		g.refused = commit
		return false, errors.Join(fmt.Errorf("commit %.12s was not loaded: %w", commit, diags.Err()), g.put(old))
	}
	return true, forgetPolicies(g.into, commit)
}
