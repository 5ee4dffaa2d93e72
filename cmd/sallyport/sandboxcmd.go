package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"sallyport/gateway/capture"
	"sallyport/policy/policyfile"
)

// controlFlags are the flags of commands that speak to the daemon.
type controlFlags struct {
	socket          string
	json            bool     // print the answer as it is
	jsonDiagnostics bool     // print those of a failure as it is, and only these
	pass            *os.File // a descriptor that goes with the call; nil: none
}

func (f *controlFlags) add(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&f.socket, "socket", "", "control socket of the daemon")
	cmd.PersistentFlags().BoolVar(&f.json, "json", false, "what the daemon answers, as it is")
}

// call makes one call and decodes its answer into out, unless that is nil.
func (f *controlFlags) call(method, path string, in, out any) error {
	socket := f.socket
	if socket == "" {
		p, err := userPaths()
		if err != nil {
			return err
		}
		socket = filepath.Join(p.runtime, controlSocket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return f.dial(ctx, socket)
	}}}
	defer client.CloseIdleConnections()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://sallyport"+path, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		hint := "is `sallyport serve` running? name its socket with --socket"
		if errors.Is(err, os.ErrPermission) {
			hint = "the socket is open to the daemon's user and group; be one of them, or root"
		}
		return &exit{code: exitFailed, err: fmt.Errorf("no daemon answers on %s: %w", socket, errors.Unwrap(err)), hint: hint}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return f.failure(resp, data)
	}
	if f.json && len(data) > 0 {
		_, err = os.Stdout.Write(data)
		return err
	}
	if out == nil || len(data) == 0 {
		return nil
	}
	return json.Unmarshal(data, out)
}

// dial connects to the daemon. What is to be passed goes with the first bytes.
func (f *controlFlags) dial(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if u, ok := c.(*net.UnixConn); ok && f.pass != nil {
		return &passingConn{UnixConn: u, pass: f.pass}, nil
	}
	return c, err
}

// passingConn passes a descriptor with the first bytes that are written.
type passingConn struct {
	*net.UnixConn
	pass *os.File
}

func (c *passingConn) Write(p []byte) (int, error) {
	if c.pass == nil {
		return c.UnixConn.Write(p)
	}
	n, _, err := c.WriteMsgUnix(p, unix.UnixRights(int(c.pass.Fd())), nil)
	if c.pass = nil; err != nil || n == len(p) {
		return n, err
	}
	m, err := c.UnixConn.Write(p[n:])
	return n + m, err
}

// failure is the error that the daemon answered, whose diagnostics it prints:
// for programs to stdout, for people to stderr.
func (f *controlFlags) failure(resp *http.Response, data []byte) error {
	var e apiError
	if err := json.Unmarshal(data, &e); err != nil || e.Error == "" {
		e.Error = resp.Status
	}
	for i, d := range e.Diagnostics {
		if f.json || f.jsonDiagnostics {
			if err := put("%s\n", d); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(os.Stderr)
		}
		if err := policyfile.WriteTextOf(os.Stderr, d, useColor(os.Stderr)); err != nil {
			return err
		}
	}
	for _, f := range e.Faults {
		if said, ok := strings.CutSuffix(e.Error, f.String()); ok {
			e.Error = said + f.text(f.flag()) // the error is of this one
			continue
		}
		fmt.Fprintln(os.Stderr, f.text(f.flag()))
	}
	return &exit{code: exitFailed, err: errors.New(e.Error)}
}

func sandboxCommand() *cobra.Command {
	var f controlFlags
	cmd := &cobra.Command{Use: "sandbox", Short: "The sandboxes of the running daemon"}
	f.add(cmd)
	var in apiAttach
	var labels []string
	var oci bool
	attach := &cobra.Command{Use: "attach --sandbox NAME (--netns NAME|PATH | --pid PID) | --oci",
		Short: "Make the daemon the only way out of a network namespace",
		Long: `Attach a network namespace that has no link but lo. The attachment outlives a
restart of the daemon, until "rm" or the end of the namespace.

--oci is for hooks of container runtimes: the state of the container comes on
standard input, as the OCI runtime specification has it. Its sandbox is named by
its annotation or, through the engine of the daemon file, its label
sallyport.sandbox.`,
		Example: `  ip netns add job1 && sallyport sandbox attach --sandbox ci --netns job1
  sallyport sandbox attach --sandbox ci --pid 4242`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if in.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if oci {
				if in, err = readHook(os.Stdin, in); err != nil {
					return err
				}
			}
			switch {
			case oci && in.PID == 0:
				return usage("--oci: the OCI state on standard input has no pid: the container does not run")
			case in.NetNS == "" && in.PID == 0:
				return usage("sandbox attach: give one of --netns, --pid and --oci")
			case in.Sandbox == "" && in.Container == "":
				return usage("sandbox attach: name the sandbox of the policy with --sandbox")
			}
			var out apiSandbox
			if err := f.call(http.MethodPost, "/v1/sandboxes", in, &out); err != nil || f.json {
				return err
			}
			return put("%s\n", out.ID)
		}}
	attach.Flags().StringVar(&in.Sandbox, "sandbox", "", "sandbox of the policy")
	attach.Flags().StringVar(&in.NetNS, "netns", "", "name below /run/netns, or path")
	attach.Flags().IntVar(&in.PID, "pid", 0, "process in the namespace")
	attach.Flags().StringVar(&in.Container, "container", "", "ID of the container whose first process --pid is; the sandbox may be left to its label")
	attach.Flags().BoolVar(&oci, "oci", false, "the OCI state of the container is on standard input")
	attach.Flags().StringArrayVar(&labels, "label", nil, "NAME=VALUE for the records (repeatable)")
	cmd.AddCommand(attach, narrowCommand(&f),
		&cobra.Command{Use: "ls", Short: "List them", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return f.list() }},
		&cobra.Command{Use: "show ID", Short: "Show one, with what to set in it", Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return f.show(os.Stdout, args[0]) }},
		removeSandboxCommand(&f),
	)
	return cmd
}

func removeSandboxCommand(f *controlFlags) *cobra.Command {
	var oci bool
	cmd := &cobra.Command{Use: "rm (ID | CONTAINER | --oci)", Short: "End one: it has no network from then on", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case oci && len(args) == 0:
				state, err := readHook(os.Stdin, apiAttach{})
				if err != nil {
					return err
				}
				args = []string{state.Container}
			case oci || len(args) == 0:
				return usage("sandbox rm: give either an ID or --oci")
			}
			return f.call(http.MethodDelete, "/v1/sandboxes/"+url.PathEscape(args[0]), nil, nil)
		}}
	cmd.Flags().BoolVar(&oci, "oci", false, "the OCI state of its container is on standard input")
	return cmd
}

// hookState is the part that is read of what a container runtime gives to its
// hooks (OCI runtime specification, "State").
type hookState struct {
	ID          string            `json:"id"`
	PID         int               `json:"pid"`
	Annotations map[string]string `json:"annotations"`
}

// readHook completes in with the state of a container.
func readHook(r io.Reader, in apiAttach) (apiAttach, error) {
	var s hookState
	if err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&s); err != nil {
		return in, usage("--oci: no OCI state on standard input: %v", err)
	}
	if s.ID == "" {
		return in, usage("--oci: the OCI state on standard input has no id")
	}
	in.Container, in.PID = s.ID, s.PID
	if in.Sandbox == "" {
		in.Sandbox = s.Annotations[capture.LabelSandbox]
	}
	return in, nil
}

func parseLabels(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usage("--label %s: not of the form NAME=VALUE", kv)
		}
		out[k] = v
	}
	return out, nil
}

func (f *controlFlags) list() error {
	var out []apiSandbox
	if err := f.call(http.MethodGet, "/v1/sandboxes", nil, &out); err != nil || f.json {
		return err
	}
	w := newTable()
	writeSandboxes(w, out)
	return w.Flush()
}

func reloadCommand() *cobra.Command {
	var f controlFlags
	cmd := &cobra.Command{Use: "reload", Short: "Make the daemon read its policy anew; exit 1 if it has errors", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var out apiReady
			if err := f.call(http.MethodPost, "/v1/reload", nil, &out); err != nil || f.json {
				return err
			}
			return put("generation %d, sha256 %s\n", out.Policy.Generation, out.Policy.SHA256)
		}}
	f.add(cmd)
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return put("sallyport %s\n", version()) }}
}
