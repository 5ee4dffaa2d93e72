package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
)

// control is the socket over which the daemon is told what to do. It lies in
// the file system and is never reachable from a sandbox.
type control struct {
	d      *daemonProcess
	path   string
	l      net.Listener
	server *http.Server
	may    callers
}

const controlSocket = "control.sock"

// openControl listens on the control socket.
func (d *daemonProcess) openControl() error {
	path := filepath.Join(d.runtime, controlSocket)
	if b := d.file.Control; b != nil && b.Socket != "" {
		path = b.Socket
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close() // it only had to answer
		return &exit{err: fmt.Errorf("another gateway serves on %s", path), hint: "stop it first"}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	c := &control{d: d, path: path, l: l}
	if err := c.permit(); err != nil {
		return errors.Join(err, l.Close())
	}
	c.server = &http.Server{Handler: c.permitted(c.routes()), ConnContext: withConn, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	d.control = c
	return c.own()
}

// own gives the socket to the group that the daemon file names. Where it names
// users everybody may connect, and who may not call is told so.
func (c *control) own() error {
	gid, mode := -1, os.FileMode(0o660)
	if b := c.d.file.Control; b != nil && b.Group != "" {
		gid = int(c.may.gid)
	}
	if c.may.named {
		mode = 0o666
	}
	if err := os.Chown(c.path, -1, gid); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return os.Chmod(c.path, mode)
}

func (c *control) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.close() })
	defer stop()
	if err := c.server.Serve(rightsListener{c.l}); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// close ends the server and its socket file.
func (c *control) close() error { return errors.Join(c.server.Close(), c.l.Close()) }

func (c *control) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range c.calls() {
		mux.HandleFunc(pattern, handle)
	}
	c.profiles(mux)
	return mux
}

// calls are the control API: what examples/openapi describes.
func (c *control) calls() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /healthz":                    healthy,
		"GET /readyz":                     c.ready,
		"POST /v1/reload":                 c.reload,
		"GET /v1/policy":                  c.showPolicy,
		"GET /v1/policy/sandboxes/{name}": c.showEffective,
		"POST /v1/policy/plan":            c.comparePolicy,
		"POST /v1/policy/apply":           c.applyPolicy,
		"GET /v1/secrets":                 c.secrets,
		"POST /v1/secrets/{name}/check":   c.checkSecret,
		"GET /v1/sandboxes":               c.list,
		"POST /v1/sandboxes":              c.attach,
		"GET /v1/sandboxes/{id}":          c.show,
		"DELETE /v1/sandboxes/{id}":       c.detach,
		"GET /v1/events":                  c.events,
		"GET /v1/alerts":                  c.showAlerts,
		"POST /v1/alerts/mutes":           c.mute,
		"DELETE /v1/alerts/mutes/{id}":    c.unmute,
	}
}

// apiError is the body of a failed call.
type apiError struct {
	Error       string            `json:"error"`
	Diagnostics []json.RawMessage `json:"diagnostics,omitempty"`
	Faults      []apiFault        `json:"faults,omitempty"`     // of a narrowing
	Generation  uint64            `json:"generation,omitempty"` // in force, where another was expected
}

// problem is the error in one line, with the first of its diagnostics.
func (e *apiError) problem() string {
	if len(e.Diagnostics) == 0 {
		return e.Error
	}
	return e.Error + ": " + string(e.Diagnostics[0])
}

// apiSandbox is a sandbox as the control socket shows it.
type apiSandbox struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Policy string            `json:"policy"`
	Where  string            `json:"where,omitempty"` // its namespace, container, interface or proxy
	Labels map[string]string `json:"labels,omitempty"`
	Narrow *apiNarrowed      `json:"narrow,omitempty"`
	Env    map[string]string `json:"env,omitempty"` // what to set in the sandbox; of POST and of one sandbox
	CA     string            `json:"ca,omitempty"`  // PEM
}

// apiAttach asks for a namespace to be attached, as a sandbox of the policy or
// as one that is narrowed for one job.
type apiAttach struct {
	Sandbox   string            `json:"sandbox,omitempty"`   // may be left out where the container's label says it
	NetNS     string            `json:"netns,omitempty"`     // name below /run/netns, or path
	PID       int               `json:"pid,omitempty"`       // of a process in the namespace
	NetNSFD   bool              `json:"netns_fd,omitempty"`  // a descriptor of the namespace is passed with the call (SCM_RIGHTS)
	Container string            `json:"container,omitempty"` // ID of the container that the process is the first of
	Labels    map[string]string `json:"labels,omitempty"`

	Name    string   `json:"name,omitempty"`    // of the job, for the records; default: the parent's
	Parent  string   `json:"parent,omitempty"`  // sandbox that is narrowed
	Only    []string `json:"only,omitempty"`    // host patterns
	Methods []string `json:"methods,omitempty"` // HTTP methods
	TTL     string   `json:"ttl,omitempty"`     // how long it lives, as 30m, 12h or 7d
}

func respond(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the caller may have gone
}

// healthy says that the process is there.
func healthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// apiReady is the state of the parts that serving needs.
type apiReady struct {
	Policy struct {
		Generation uint64 `json:"generation"`
		SHA256     string `json:"sha256"`
		Commit     string `json:"commit,omitempty"` // of a policy that is followed by commit, or as a push said
	} `json:"policy"`
	CA        string `json:"ca"` // fingerprint
	Audit     string `json:"audit"`
	Sandboxes int    `json:"sandboxes"`
}

func (c *control) ready(w http.ResponseWriter, _ *http.Request) {
	var r apiReady
	code := http.StatusOK
	if p := c.d.gateway.Policy(); p != nil {
		r.Policy.Generation, r.Policy.SHA256, r.Policy.Commit = p.Generation(), p.SHA256(), c.d.commit()
	}
	r.CA, r.Audit, r.Sandboxes = c.d.ca.Fingerprint(), "ok", len(c.d.sandboxes.List())
	if err := c.d.log.Healthy(); err != nil {
		r.Audit, code = err.Error(), http.StatusServiceUnavailable
	}
	respond(w, code, r)
}

func (c *control) reload(w http.ResponseWriter, _ *http.Request) {
	diags := c.d.stack.reload()
	if diags.HasErrors() {
		e := apiError{Error: "the policy has errors; what was in force stays", Diagnostics: diagnosticLines(diags)}
		respond(w, http.StatusUnprocessableEntity, e)
		return
	}
	c.d.captures.reconsider()
	c.ready(w, nil)
}

func (c *control) list(w http.ResponseWriter, _ *http.Request) {
	out := []apiSandbox{}
	for _, sb := range c.d.sandboxes.List() {
		out = append(out, c.brief(sb))
	}
	respond(w, http.StatusOK, out)
}

func (c *control) attach(w http.ResponseWriter, r *http.Request) {
	var in apiAttach
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		respond(w, http.StatusBadRequest, apiError{Error: err.Error()})
		return
	}
	narrow, faults := c.narrowing(&in)
	if len(faults) > 0 {
		respond(w, http.StatusUnprocessableEntity, refusedNarrowing(faults))
		return
	}
	sb, err := c.attached(r.Context(), in, narrow)
	if err != nil {
		respond(w, http.StatusUnprocessableEntity, apiError{Error: err.Error()})
		return
	}
	respond(w, http.StatusCreated, c.whole(sb))
}

func (c *control) attached(ctx context.Context, in apiAttach, narrow *narrowed) (*identity.Sandbox, error) {
	switch {
	case in.NetNSFD && (in.NetNS != "" || in.PID > 0 || in.Container != ""):
		return nil, errors.New("netns_fd: the namespace is named in another way as well; give one of them")
	case in.NetNSFD:
		return c.attachedPassed(ctx, in, narrow)
	case in.Container != "" && narrow != nil:
		return nil, errors.New("a container is not narrowed; give its namespace by pid alone")
	case in.Container != "" && in.PID > 0 && in.NetNS == "":
		return c.d.captures.attachContainer(ctx, in.Container, in.PID, in.Sandbox, in.Labels)
	case in.Container != "":
		return nil, errors.New("a container needs the pid of its first process, and no netns")
	case in.NetNS != "" && in.PID == 0:
		return c.d.captures.attach(attachment{Sandbox: in.Sandbox, Labels: in.Labels, Narrow: narrow, NetNS: namespacePath(in.NetNS)})
	case in.PID > 0 && in.NetNS == "":
		return c.d.captures.attach(attachment{Sandbox: in.Sandbox, Labels: in.Labels, Narrow: narrow, NetNS: capture.Container{PID: in.PID}.NetNS()})
	}
	return nil, errors.New("give one of netns, pid and netns_fd")
}

// attachedPassed attaches the namespace whose descriptor was passed.
func (c *control) attachedPassed(ctx context.Context, in apiAttach, narrow *narrowed) (*identity.Sandbox, error) {
	f, err := passedNamespace(ctx)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	path, err := c.d.captures.place(f)
	if err != nil {
		return nil, err
	}
	sb, err := c.d.captures.attach(attachment{Sandbox: in.Sandbox, Labels: in.Labels, Narrow: narrow, NetNS: path})
	if err != nil {
		return nil, errors.Join(err, c.d.captures.unpin(path))
	}
	return sb, nil
}

// whole is everything that may be known of a sandbox.
func (c *control) whole(sb *identity.Sandbox) apiSandbox {
	env := c.d.sandboxEnv(sb, capture.FilesDir)
	if address, ok := c.d.captures.proxyOf(sb); ok {
		addProxy(env, address, sb.Policy, c.d.loader.key)
	}
	out := c.brief(sb)
	out.Env, out.CA = env, string(c.d.ca.PEM())
	return out
}

// brief is what a list shows of a sandbox.
func (c *control) brief(sb *identity.Sandbox) apiSandbox {
	out := apiSandbox{ID: sb.ID, Name: sb.Name, Policy: sb.Policy, Where: c.d.captures.where(sb), Labels: sb.Labels}
	if sb.Narrow != nil {
		out.Narrow = showNarrowed(sb)
	}
	return out
}

func (c *control) show(w http.ResponseWriter, r *http.Request) {
	sb := c.d.sandboxes.ByID(r.PathValue("id"))
	if sb == nil {
		respond(w, http.StatusNotFound, apiError{Error: fmt.Sprintf("no sandbox has the id %q; sallyport sandbox ls lists them", r.PathValue("id"))})
		return
	}
	respond(w, http.StatusOK, c.whole(sb))
}

func (c *control) detach(w http.ResponseWriter, r *http.Request) {
	if err := c.d.captures.detach(r.PathValue("id")); err != nil {
		respond(w, http.StatusNotFound, apiError{Error: err.Error()})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
