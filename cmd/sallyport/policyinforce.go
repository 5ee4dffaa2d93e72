package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"sallyport/policy/policyfile"
)

// apiPolicy is the policy in force, with the text of its files.
type apiPolicy struct {
	Generation uint64            `json:"generation"`
	SHA256     string            `json:"sha256"`
	Commit     string            `json:"commit,omitempty"`
	Paths      []string          `json:"paths"`
	Sandboxes  []string          `json:"sandboxes"`
	Changed    bool              `json:"changed,omitempty"` // the files are no longer what is in force
	Files      map[string]string `json:"files"`             // text by name, as it is now; empty where they cannot be read
}

// showPolicy answers with the policy in force.
func (c *control) showPolicy(w http.ResponseWriter, _ *http.Request) {
	out := apiPolicy{Paths: c.d.loader.paths, Commit: c.d.commit(), Sandboxes: []string{}, Files: map[string]string{}}
	if set := c.d.gateway.Policy(); set != nil {
		out.Generation, out.SHA256, out.Sandboxes = set.Generation(), set.SHA256(), append(out.Sandboxes, set.Sandboxes()...)
	}
	files, _ := policyfile.Contents(out.Paths, policyfile.Options{}) // what cannot be read has changed
	for name, text := range files {
		out.Files[name] = string(text)
	}
	doc, _ := policyfile.Load(out.Paths, c.d.loader.options())
	out.Changed = doc == nil || doc.SHA256 != out.SHA256
	respond(w, http.StatusOK, out)
}

// apiEffective is what a sandbox of the policy in force may do, and which of
// its live sandboxes may do less.
type apiEffective struct {
	Generation uint64 `json:"generation"`
	jsonSandbox
	Narrowed []apiSandbox `json:"narrowed,omitempty"`
}

// showEffective answers with what the gateway enforces for one sandbox of the
// policy: what was compiled, whatever the files say by now.
func (c *control) showEffective(w http.ResponseWriter, r *http.Request) {
	name, set := r.PathValue("name"), c.d.gateway.Policy()
	if set == nil || set.Sandbox(name) == nil {
		respond(w, http.StatusNotFound, apiError{Error: fmt.Sprintf("the policy in force has no sandbox %q", name)})
		return
	}
	out := apiEffective{Generation: set.Generation(), jsonSandbox: sandboxJSON(set, name)}
	for _, sb := range c.d.sandboxes.List() {
		if sb.Policy == name && sb.Narrow != nil {
			out.Narrowed = append(out.Narrowed, c.brief(sb))
		}
	}
	respond(w, http.StatusOK, out)
}

// showRunning shows what a running gateway enforces. It first says of which
// policy.
func (f *showFlags) showRunning(w io.Writer) error {
	var in apiPolicy
	c := controlFlags{socket: f.socket}
	if err := c.call(http.MethodGet, "/v1/policy", nil, &in); err != nil {
		return err
	}
	names, err := f.chosen(in.Sandboxes)
	if err != nil {
		return err
	}
	if in.Changed {
		fmt.Fprintln(os.Stderr, "sallyport: warning: the files are others than were loaded; what is shown is in force, and they are not (sallyport reload says why)")
	}
	if err := f.writeHead(w, in); err != nil {
		return err
	}
	for _, name := range names {
		var sb apiEffective
		if err := c.call(http.MethodGet, "/v1/policy/sandboxes/"+url.PathEscape(name), nil, &sb); err != nil {
			return err
		}
		if sb.Generation != in.Generation {
			return &exit{code: exitFailed, err: fmt.Errorf("the policy changed while it was shown, from generation %d to %d", in.Generation, sb.Generation), hint: "ask again"}
		}
		if f.json {
			err = writeJSON(w, sb)
		} else {
			err = sb.write(w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeHead says which policy is in force.
func (f *showFlags) writeHead(w io.Writer, in apiPolicy) error {
	if f.json {
		return writeJSON(w, map[string]any{"generation": in.Generation, "sha256": in.SHA256, "commit": in.Commit, "paths": in.Paths, "changed": in.Changed})
	}
	line := fmt.Sprintf("generation %d, sha256 %s", in.Generation, in.SHA256)
	if in.Commit != "" {
		line += ", commit " + in.Commit
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// write writes the tree of the sandbox, and those that are narrowed.
func (e apiEffective) write(w io.Writer) error {
	if err := writeTree(w, e.jsonSandbox); err != nil {
		return err
	}
	for _, sb := range e.Narrowed {
		until := ""
		if !sb.Narrow.Expires.IsZero() {
			until = ", until " + sb.Narrow.Expires.UTC().Format(time.RFC3339)
		}
		if _, err := fmt.Fprintf(w, "  live %s %s is narrowed to %s, %s%s\n", sb.ID, sb.Name,
			orAll(sb.Narrow.Only, "all its hosts"), orAll(sb.Narrow.Methods, "all its methods"), until); err != nil {
			return err
		}
	}
	return nil
}
