package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// checkOnly reads the daemon file and its policy as a start does, says whether
// they are good, and starts and writes nothing.
func (f *serveFlags) checkOnly() error {
	p, file, err := f.readConfig()
	if err != nil {
		return err
	}
	s, err := f.settings(p, file)
	if err != nil {
		return err
	}
	for _, b := range file.Captures {
		if err := b.check(); err != nil {
			return b.at(err)
		}
	}
	if _, err := file.permitted(); err != nil {
		return err
	}
	if _, err := closedFolder(s.state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	said := "its defaults are good (there is no daemon file " + f.configPath(p) + ")"
	if file.source != nil {
		said = f.configPath(p) + " is good"
	}
	of, err := f.checkPolicy(p, file, s)
	if err != nil {
		return err
	}
	return put("%s; %s\n", said, of)
}

// checkPolicy loads the policy that a start would load, and says what was
// found.
func (f *serveFlags) checkPolicy(p paths, file *daemonFile, s settings) (string, error) {
	git, err := file.follows(&s)
	if err != nil {
		return "", err
	}
	push, err := file.takesPushes(&s)
	if err != nil {
		return "", err
	}
	if len(s.policy) == 0 {
		if s.policy, err = policyFolder(p); err != nil {
			return "", err
		}
	}
	if git != nil || push != nil {
		if _, err := os.Stat(s.policy[0]); errors.Is(err, fs.ErrNotExist) {
			return "there is no policy yet of " + map[bool]string{true: "policy_git", false: "policy_push"}[git != nil], nil
		}
	}
	l := &loader{paths: s.policy, vars: s.vars, log: hclog.NewNullLogger()}
	doc, set, diags := l.check()
	if err := diagnosed(diags); err != nil {
		return "", err
	}
	if err := file.fits(doc, set); err != nil {
		return "", err
	}
	return "the policy " + strings.Join(s.policy, ", ") + " is good", nil
}

// fits says what of the daemon file a policy does not go with.
func (d *daemonFile) fits(doc *policy.Document, set *policy.Set) error {
	engine := false
	for _, b := range d.Captures {
		engine = engine || b.Engine != ""
		if b.Sandbox != "" && set.Sandbox(b.Sandbox) == nil {
			return b.at(fmt.Errorf("the policy has no sandbox %q; it has %s", b.Sandbox, strings.Join(set.Sandboxes(), ", ")))
		}
	}
	if d.Confine {
		if err := mayConfine(engine, commandsOf(doc.Secrets)); err != nil {
			return d.at(err, "confine")
		}
	}
	return nil
}

// settings are those of the daemon file and of the flags.
func (f *serveFlags) settings(p paths, file *daemonFile) (settings, error) {
	s, err := file.settings(p)
	if err != nil {
		return s, err
	}
	if len(f.policy) > 0 {
		s.policy = f.policy
	}
	if slices.Contains(s.policy, policyfile.Stdin) {
		return s, &exit{err: errors.New("serve: a daemon reads its policy again, and standard input only once"), hint: "name a file or a folder; or set policy_push = true in the daemon file and use sallyport policy apply -"}
	}
	s.vars = variables(f.vars)
	return s, nil
}

// follows makes the policy of s that of a branch, if the file says so. Nothing
// is fetched.
func (d *daemonFile) follows(s *settings) (*gitPolicy, error) {
	switch {
	case d.Git == nil:
		return nil, nil
	case d.Confine:
		return nil, d.at(errors.New("a confined daemon runs no git; leave confine out"), "policy_git")
	case len(s.policy) > 0:
		return nil, d.at(fmt.Errorf("the policy is named in another way as well (%s); give one of them", strings.Join(s.policy, ", ")), "policy_git")
	}
	g, err := newGitPolicy(*d.Git, *s)
	if err != nil {
		return nil, d.at(err, "policy_git")
	}
	s.policy = []string{g.current()}
	return g, nil
}

// takesPushes makes the policy of s the one that is pushed, if the file says
// so. Nothing is made for it.
func (d *daemonFile) takesPushes(s *settings) (*pushedPolicy, error) {
	switch {
	case !d.Push:
		return nil, nil
	case d.Git != nil:
		return nil, d.at(errors.New("the policy is named in another way as well (policy_git); give one of them"), "policy_push")
	case len(s.policy) > 0:
		return nil, d.at(fmt.Errorf("the policy is named in another way as well (%s); give one of them", strings.Join(s.policy, ", ")), "policy_push")
	}
	p := &pushedPolicy{into: filepath.Join(s.own, "policy-pushed")}
	s.policy = []string{currentOf(p.into)}
	return p, nil
}
