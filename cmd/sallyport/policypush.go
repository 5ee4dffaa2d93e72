package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"sallyport/audit"
)

// pushedPolicy is a policy that is brought over the control socket. What is in
// force is the folder of the last push, kept in the state.
type pushedPolicy struct {
	into string // folder with one folder for each push, and the link to the one in force
	mu   sync.Mutex
}

// nothingPushed is the policy before the first push: nothing is allowed.
const nothingPushed = "# No policy has been pushed yet; sallyport policy apply brings one.\nlocals {\n  pushed = false\n}\n"

// Names in the folder of a push that are no policy.
const (
	commitFile     = "commit"
	generationFile = "generation" // in the folder of all pushes
)

// pushed makes the policy of s the one that is pushed, if the file says so, and
// has one to start with.
func (d *daemonFile) pushed(s *settings) (*pushedPolicy, error) {
	p, err := d.takesPushes(s)
	if p == nil || err != nil {
		return nil, err
	}
	if _, err := os.Stat(currentOf(p.into)); !errors.Is(err, os.ErrNotExist) {
		return p, err
	}
	return p, p.keep(map[string]string{"policy.hcl": nothingPushed}, "")
}

// currentOf is the link to the policy in force of a folder of policies.
func currentOf(into string) string { return filepath.Join(into, "current") }

// origin has the stack tell where the policy in force comes from, and go on
// counting where it stopped.
func (d *daemonProcess) origin() error {
	if d.git != nil {
		d.commit = d.git.commit
	}
	d.brought = d.git != nil || d.push != nil
	if d.push == nil {
		return nil
	}
	d.commit, d.noted = d.push.commit, d.push.note
	n, err := d.push.generation()
	if n > 0 {
		d.loader.generation = n - 1 // what is loaded now is what was in force
	}
	return err
}

// putCurrent makes a folder in into the current one.
func putCurrent(into, name string) error {
	next := filepath.Join(into, "next")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.Symlink(name, next), os.Rename(next, currentOf(into)), syncFolder(into))
}

// syncFolder has what was renamed in a folder outlive a power cut.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// forgetPolicies removes the folders in into but one.
func forgetPolicies(into, but string) error {
	list, err := os.ReadDir(into)
	for _, e := range list {
		if e.IsDir() && e.Name() != but {
			err = errors.Join(err, os.RemoveAll(filepath.Join(into, e.Name())))
		}
	}
	return err
}

// keep writes the files of a push to a folder of their own and makes that the
// current one.
func (p *pushedPolicy) keep(files map[string]string, commit string) error {
	dir := filepath.Join(p.into, audit.NewID())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if commit != "" {
		files[commitFile] = commit
	}
	for name, text := range files {
		if err := writeSynced(filepath.Join(dir, name), text); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
	return errors.Join(syncFolder(dir), putCurrent(p.into, filepath.Base(dir)))
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// commit is what the last push said that it is, "" if it said nothing.
func (p *pushedPolicy) commit() string {
	text, _ := os.ReadFile(filepath.Join(currentOf(p.into), commitFile)) // it need not be there
	return string(text)
}

// generation is the one of the policy in force before a restart, 0 before the
// first. It goes on from there, so that a number never stands for two policies.
func (p *pushedPolicy) generation() (uint64, error) {
	text, err := os.ReadFile(filepath.Join(p.into, generationFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Join(p.into, generationFile), err)
	}
	return n, nil
}

// note keeps the generation that is in force.
func (p *pushedPolicy) note(generation uint64) error {
	temp := filepath.Join(p.into, generationFile+".new")
	err := writeSynced(temp, strconv.FormatUint(generation, 10)+"\n")
	return errors.Join(err, os.Rename(temp, filepath.Join(p.into, generationFile)))
}

// apiApply asks the daemon to put a policy in force.
type apiApply struct {
	Files           map[string]string `json:"files"`                      // text by name
	CheckGeneration *uint64           `json:"check_generation,omitempty"` // refuse if another one is in force
	RefuseWidenings bool              `json:"refuse_widenings,omitempty"`
	Commit          string            `json:"commit,omitempty"` // of the repository that it comes from, for the records
}

// apiApplied is what a push changes, and whether it was put in force: with
// refuse_widenings it may not be.
type apiApplied struct {
	plan
	Applied bool `json:"applied"`
}

// applyPolicy answers a call that brings a policy: all of it is put in force
// and kept, or nothing.
func (c *control) applyPolicy(w http.ResponseWriter, r *http.Request) {
	var in apiApply
	if err := decodeStrict(http.MaxBytesReader(w, r.Body, maxPlan), &in); err != nil {
		respond(w, http.StatusBadRequest, apiError{Error: err.Error()})
		return
	}
	p := c.d.push
	if p == nil {
		respond(w, http.StatusConflict, apiError{Error: c.d.whereFrom()})
		return
	}
	files, err := pushedFiles(in)
	if err != nil {
		respond(w, http.StatusBadRequest, apiError{Error: err.Error()})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out, refused := c.compared(in)
	switch {
	case refused != nil:
		c.d.stack.refused(refused.problem())
		respond(w, http.StatusUnprocessableEntity, *refused)
		return
	case in.CheckGeneration != nil && *in.CheckGeneration != out.Generation:
		respond(w, http.StatusConflict, apiError{Generation: out.Generation,
			Error: fmt.Sprintf("generation %d is in force, and not %d: the policy has changed since; nothing was applied", out.Generation, *in.CheckGeneration)})
		return
	case in.RefuseWidenings && out.Widenings > 0:
		respond(w, http.StatusOK, out)
		return
	}
	before, err := os.Readlink(currentOf(p.into))
	if err == nil {
		err = p.keep(files, in.Commit)
	}
	if err != nil {
		respond(w, http.StatusInternalServerError, apiError{Error: "the policy cannot be kept, and was not applied: " + err.Error()})
		return
	}
	if diags := c.d.stack.reload(); diags.HasErrors() {
		if err := putCurrent(p.into, before); err != nil {
			c.d.settings.log.Error("the policy of before was not put back", "error", err)
		}
		respond(w, http.StatusUnprocessableEntity, apiError{Error: "the policy has errors; what was in force stays", Diagnostics: diagnosticLines(diags)})
		return
	}
	c.d.captures.reconsider()
	if now, err := os.Readlink(currentOf(p.into)); err == nil {
		if err := forgetPolicies(p.into, now); err != nil {
			c.d.settings.log.Warn("the policy of before was not removed", "error", err)
		}
	}
	set := c.d.gateway.Policy()
	out.Applied, out.Generation, out.SHA256 = true, set.Generation(), set.SHA256()
	respond(w, http.StatusOK, out)
}

// compared compiles what was brought and compares it with what is in force.
func (c *control) compared(in apiApply) (apiApplied, *apiError) {
	p, refused := c.planWith(in.Files)
	return apiApplied{plan: p}, refused
}

// whereFrom says why a policy is not taken.
func (d *daemonProcess) whereFrom() string {
	const how = "; to have it pushed, set policy_push = true in the daemon file in its stead"
	if d.git != nil {
		return fmt.Sprintf("the policy is that of branch %s of %s: push the commit there%s", d.git.Branch, d.git.Path, how)
	}
	return fmt.Sprintf("the policy is that of %s: change the files, and sallyport reload%s", strings.Join(d.loader.paths, ", "), how)
}

// maxCommitID bounds what a push may say of its commit.
const maxCommitID = 64

// pushedFiles are the files of a push under the names that they are kept by.
func pushedFiles(in apiApply) (map[string]string, error) {
	if len(in.Commit) > maxCommitID || strings.Trim(strings.ToLower(in.Commit), "0123456789abcdef") != "" {
		return nil, errors.New("commit: not the hexadecimal ID of a commit")
	}
	out := map[string]string{}
	for path, text := range in.Files {
		name := filepath.Base(path)
		switch {
		case filepath.Ext(name) != ".hcl" || name[0] == '.' || strings.HasSuffix(name, "_test.hcl") || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, fmt.Errorf("files: %q is not the name of a policy file", path)
		case out[name] != "":
			return nil, fmt.Errorf("files: two are called %s; give them different names", name)
		}
		out[name] = text
	}
	return out, nil
}
