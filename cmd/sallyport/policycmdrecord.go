package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"sallyport/audit"
	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// explainRecord explains the request of a record.
func (f *explainFlags) explainRecord() error {
	state, err := stateFolder(f.state)
	if err != nil {
		return err
	}
	e, err := findRecord(logFolders(state), f.record)
	if err != nil {
		return err
	}
	if e == nil {
		return &exit{code: exitFailed, err: fmt.Errorf("no record %s in the audit logs below %s", f.record, state),
			hint: "name the gateway's state folder with --state, as its daemon file does"}
	}
	q, ok := requestOf(e)
	if !ok || e.Sandbox == nil {
		return &exit{code: exitFailed, err: fmt.Errorf("record %s is of kind %s and names no request that policy decides", f.record, e.Kind),
			hint: "sallyport tail -o json shows the record"}
	}
	b, err := f.policyOf(e)
	if err != nil {
		return err
	}
	then := e.Policy != nil && e.Policy.SHA256 == b.Set.SHA256()
	if f.sandbox == "" {
		f.sandbox = e.Sandbox.Name
		if e.Sandbox.Parent != "" && b.Set.Sandbox(f.sandbox) == nil {
			f.sandbox = e.Sandbox.Parent // it was narrowed for a job
		}
	}
	if !f.json {
		var line strings.Builder
		audit.Compact(&line, e, useColor(os.Stdout))
		if err := put("%s\n", line.String()); err != nil {
			return err
		}
	}
	f.sha256 = b.Set.SHA256()
	out := earlier(b.Set, f.sandbox, e)
	if e.HTTP != nil {
		out = newTrial(b).judge(f.sandbox, e.Time, q)
	}
	if string(out.decision.Reason) != e.Reason && then && !f.json {
		fmt.Fprintf(os.Stderr, "sallyport: hint: the record says %s; what is decided beyond policy (addresses, limits, secrets in the request), and what a body asked for, is not in a record\n", e.Reason)
	}
	return f.tell(os.Stdout, out, q)
}

// earlier decides a question or a connection again, of which no request had been
// seen.
func earlier(set *policy.Set, sandbox string, e *audit.Event) outcome {
	r := policy.Request{Sandbox: sandbox, Stage: policy.StageConn, Host: e.Host, Port: portOf(e), Now: e.Time}
	switch {
	case e.Kind == audit.KindDNS:
		r.Stage, r.Port = policy.StageName, 0
	case e.TLS != nil:
		r.Scheme = policy.HTTPS
	}
	x := set.Explain(r)
	return outcome{decision: x.Decision, rules: x.Rules}
}

// portOf is the port that an attempt was made to; 0 where it had none.
func portOf(e *audit.Event) uint16 {
	if e.Port == 0 && e.Dst != nil {
		return e.Dst.Port
	}
	return e.Port
}

// findRecord returns the decision with an id, its own or its request's.
func findRecord(dirs []string, id string) (*audit.Event, error) {
	var bad unreadable
	for e, err := range audit.Read(context.Background(), dirs, audit.Filter{}) {
		if bad.note(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if e.Phase == audit.PhaseDecision && (strings.EqualFold(e.ID, id) || strings.EqualFold(e.Req, id)) {
			return e, nil
		}
	}
	return nil, nil
}

// requestOf is the request that a decision was about, as far as the record
// tells: it has no values of a query and no headers.
func requestOf(e *audit.Event) (policyfile.TestRequest, bool) {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := portOf(e)
	switch {
	case host == "":
		return policyfile.TestRequest{}, false
	case e.HTTP != nil:
		scheme := e.HTTP.Scheme
		if e.Kind == audit.KindWS {
			scheme = map[string]string{"https": "wss", "http": "ws"}[scheme]
		}
		if port != 0 {
			host = fmt.Sprintf("%s:%d", host, port)
		}
		return policyfile.TestRequest{Method: e.HTTP.Method, URL: scheme + "://" + host + e.HTTP.Path}, true
	case e.Kind == audit.KindDNS:
		return policyfile.TestRequest{URL: "dns:" + host}, true
	case port != 0:
		return policyfile.TestRequest{URL: fmt.Sprintf("tcp://%s:%d", host, port)}, true
	}
	return policyfile.TestRequest{}, false
}

// policyOf is the policy that a record was decided by: what the files hold,
// or what they held in an earlier commit. Where it is not to be had, today's
// is taken, and said so.
func (f *explainFlags) policyOf(e *audit.Event) (*policyfile.Bundle, error) {
	paths, err := f.paths(nil)
	if err != nil {
		return nil, err
	}
	b, diags := policyfile.LoadBundle(paths, 1, f.options())
	if e.Policy == nil || e.Policy.SHA256 == "" || b != nil && b.Set.SHA256() == e.Policy.SHA256 {
		if b == nil {
			return nil, f.invalid(diags)
		}
		return b, nil
	}
	old, commit := historic(paths, e.Policy.SHA256, f.options())
	switch {
	case old != nil:
		fmt.Fprintf(os.Stderr, "sallyport: hint: decided by the policy of commit %s, which was in force then\n", commit)
		return old, nil
	case b == nil:
		return nil, f.invalid(diags)
	}
	fmt.Fprintln(os.Stderr, "sallyport: hint: the policy of that time is not in the files or their git history; decided by today's")
	return b, nil
}

// maxCommits bounds how far back a policy is looked for.
const maxCommits = 500

// historic looks for the commit in which a policy's files had a digest. It
// returns nil when there is none, or no repository.
func historic(paths []string, sha256 string, o policyfile.Options) (*policyfile.Bundle, string) {
	if len(paths) != 1 {
		return nil, ""
	}
	abs, err := filepath.Abs(paths[0])
	if err != nil {
		return nil, ""
	}
	g := repository{dir: filepath.Dir(abs), name: filepath.Base(abs)}
	log, err := g.git("log", fmt.Sprintf("--max-count=%d", maxCommits), "--format=%h", "--", g.name)
	if err != nil {
		return nil, ""
	}
	for _, commit := range strings.Fields(log) {
		files := g.files(commit)
		if len(files) == 0 {
			continue
		}
		if b, _ := policyfile.ParseBundle(files, 1, o); b != nil && b.Set.SHA256() == sha256 {
			return b, commit
		}
	}
	return nil, ""
}

// repository is the git checkout that a policy's path lies in.
type repository struct{ dir, name string }

func (g repository) git(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", g.dir, "-c", "core.quotepath=off"}, args...)...)
	out, err := cmd.Output()
	return string(out), err
}

// files are the policy's files in a commit, by their base names, as the
// policy's digest has them.
func (g repository) files(commit string) map[string][]byte {
	list, err := g.git("ls-tree", "--name-only", commit, g.name, g.name+"/")
	if err != nil {
		return nil
	}
	out := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSpace(list), "\n") {
		if !strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, "_test.hcl") || strings.HasPrefix(path.Base(name), ".") {
			continue
		}
		data, err := g.git("show", commit+":./"+name)
		if err != nil {
			return nil
		}
		out[path.Base(name)] = []byte(data)
	}
	return out
}
