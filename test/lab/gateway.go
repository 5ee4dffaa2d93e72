//go:build linux

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTime bounds how long a gateway may take to answer. With the race
// detector a policy of 60,000 rules takes a minute.
const startTime = 3 * time.Minute

// GatewayOptions describe a daemon.
type GatewayOptions struct {
	Policy     map[string]string // file name below policy.d → text
	Interfaces []string          // globs of links of the gateway's host
	Denied     string            // of the dns block; default explain
	Audit      string            // attributes of the audit block
	More       string            // blocks of the daemon file
	Env        []string
	State      string // folder; default one of the gateway's own
}

// Gateway is a daemon on the gateway's host.
type Gateway struct {
	Lab    *Lab
	Dir    string // configuration and logs
	State  string
	CA     []byte // PEM
	log    *eventLog
	env    []string
	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	client *http.Client
}

// Gateway starts a daemon for one test.
func (l *Lab) Gateway(t testing.TB, o GatewayOptions) *Gateway {
	t.Helper()
	g, err := l.OpenGateway(o)
	return g.until(t, err)
}

// OpenGateway starts a daemon. Close ends it.
func (l *Lab) OpenGateway(o GatewayOptions) (*Gateway, error) {
	g, err := l.prepareGateway(o)
	if err != nil {
		return nil, err
	}
	if err := g.Start(); err != nil {
		g.log.stop()
		return nil, err
	}
	return g, nil
}

// UnstartedGateway lays a daemon out for one test that starts it when it likes.
func (l *Lab) UnstartedGateway(t testing.TB, o GatewayOptions) *Gateway {
	t.Helper()
	g, err := l.prepareGateway(o)
	return g.until(t, err)
}

// until has the daemon closed when the test ends.
func (g *Gateway) until(t testing.TB, err error) *Gateway {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (l *Lab) prepareGateway(o GatewayOptions) (*Gateway, error) {
	g := &Gateway{Lab: l, Dir: filepath.Join(l.Dir, l.Unique("gateway")), env: o.Env}
	g.State = o.State
	if g.State == "" {
		g.State = filepath.Join(g.Dir, "state")
	}
	g.client = &http.Client{Timeout: controlTime(), Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.Socket())
		}}}
	if err := errors.Join(os.MkdirAll(g.PolicyDir(), 0o755), os.MkdirAll(g.State, 0o700)); err != nil {
		return nil, err
	}
	for name, text := range o.Policy {
		if err := os.WriteFile(filepath.Join(g.PolicyDir(), name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(g.Config(), []byte(g.daemonFile(o)), 0o644); err != nil {
		return nil, err
	}
	g.log = follow(filepath.Join(g.State, "audit"))
	return g, nil
}

// Socket is the control socket.
func (g *Gateway) Socket() string { return filepath.Join(g.Dir, "control.sock") }

// PolicyDir is the folder of the policy's files.
func (g *Gateway) PolicyDir() string { return filepath.Join(g.Dir, "policy.d") }

// Config is the daemon file.
func (g *Gateway) Config() string { return filepath.Join(g.Dir, "sallyport.hcl") }

func (g *Gateway) stderr() string { return filepath.Join(g.Dir, "stderr.log") }

// daemonFile is the configuration.
func (g *Gateway) daemonFile(o GatewayOptions) string {
	var b strings.Builder
	fmt.Fprintf(&b, "state = %q\npolicy = [%q]\nlog { level = \"debug\" }\n", g.State, g.PolicyDir())
	fmt.Fprintf(&b, "control { socket = %q }\n", g.Socket())
	fmt.Fprintf(&b, "upstream {\n  resolvers = [%q]\n  ca_file = %q\n}\n", net.JoinHostPort(Resolver, "53"), g.Lab.CAFile)
	if o.Denied != "" {
		fmt.Fprintf(&b, "dns { denied = %q }\n", o.Denied)
	}
	if o.Audit != "" {
		fmt.Fprintf(&b, "audit {\n%s\n}\n", o.Audit)
	}
	if len(o.Interfaces) > 0 {
		list, _ := json.Marshal(o.Interfaces) // strings always marshal
		fmt.Fprintf(&b, "capture \"interfaces\" { interface = %s }\n", list)
	}
	return b.String() + o.More
}

// Start starts the daemon's process and waits until it is ready.
func (g *Gateway) Start() error {
	if err := g.Launch(); err != nil {
		return err
	}
	deadline := time.Now().Add(startTime)
	for {
		resp, err := g.client.Get("http://gateway/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				g.CA, err = os.ReadFile(filepath.Join(g.State, "ca.pem"))
				return err
			}
		}
		select {
		case <-g.exited:
			return fmt.Errorf("the gateway ended at once:\n%s", g.Stderr())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the gateway is not ready: %w\n%s", err, g.Stderr())
		}
	}
}

// Launch starts the daemon's process and does not wait.
func (g *Gateway) Launch() error {
	out, err := os.OpenFile(g.stderr(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(g.Lab.Binary, "serve", "--config", g.Config())
	cmd.Env = append(os.Environ(), g.env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := g.Lab.GW.Start(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is asked with Exit
		close(exited)
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cmd, g.exited = cmd, exited
	return nil
}

// PID is the daemon's process.
func (g *Gateway) PID() int { return g.cmd.Process.Pid }

// Exit waits for the process to end and returns its exit code.
func (g *Gateway) Exit(wait time.Duration) (int, error) {
	select {
	case <-g.exited:
		return g.cmd.ProcessState.ExitCode(), nil
	case <-time.After(wait):
		return 0, errors.New("the gateway is still running")
	}
}

// Signal sends a signal to the daemon.
func (g *Gateway) Signal(s syscall.Signal) error { return g.cmd.Process.Signal(s) }

// Kill ends the daemon at once, as kill -9 does.
func (g *Gateway) Kill() error {
	err := g.Signal(syscall.SIGKILL)
	<-g.exited
	return err
}

// Freeze stops the daemon with SIGSTOP and waits until it stands still.
func (g *Gateway) Freeze() error {
	if err := g.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	still := Within(startTime, func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.PID()))
		return err == nil && bytes.Contains(b, []byte(") T "))
	})
	if !still {
		return errors.New("the gateway does not stand still")
	}
	return nil
}

// Stop ends the daemon in order. It is told again, so that it does not wait
// for what is open.
func (g *Gateway) Stop() error {
	for end := time.Now().Add(startTime); time.Now().Before(end); {
		if err := g.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-g.exited:
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
	return errors.Join(errors.New("the gateway did not stop"), g.Kill())
}

// Close ends the daemon, and fails if it raced or panicked.
func (g *Gateway) Close() error {
	var errs []error
	if g.cmd != nil && g.running() {
		errs = append(errs, g.Stop())
	}
	g.log.stop()
	if g.cmd == nil {
		return nil
	}
	for _, bad := range []string{"DATA RACE", "panic", "goroutine 1 ["} {
		if text := g.Stderr(); strings.Contains(text, bad) {
			errs = append(errs, fmt.Errorf("the gateway's log has %q:\n%s", bad, around(text, bad)))
		}
	}
	return errors.Join(errs...)
}

func around(text, part string) string {
	i := strings.Index(text, part)
	return text[max(0, i-500):min(len(text), i+3000)]
}

// Stderr is what the daemon has said.
func (g *Gateway) Stderr() string {
	b, err := os.ReadFile(g.stderr())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// WritePolicy writes a file of the policy, which the daemon soon sees.
func (g *Gateway) WritePolicy(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.PolicyDir(), name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// RemovePolicy removes a file of the policy.
func (g *Gateway) RemovePolicy(t testing.TB, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(g.PolicyDir(), name)); err != nil {
		t.Fatal(err)
	}
}

// Reload makes the daemon read its policy, and returns the daemon's error.
func (g *Gateway) Reload() error { return g.call(http.MethodPost, "/v1/reload", nil, nil) }

// SetPolicy writes a file of the policy and reloads.
func (g *Gateway) SetPolicy(t testing.TB, name, text string) {
	t.Helper()
	g.WritePolicy(t, name, text)
	if err := g.Reload(); err != nil {
		t.Fatal(err)
	}
}

// Ready is the state of the daemon's policy.
type Ready struct {
	Policy struct {
		Generation uint64 `json:"generation"`
		SHA256     string `json:"sha256"`
	} `json:"policy"`
}

// Ready asks for it.
func (g *Gateway) Ready() (Ready, error) {
	var r Ready
	return r, g.call(http.MethodGet, "/readyz", nil, &r)
}

// call makes one call over the control socket.
func (g *Gateway) call(method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, "http://gateway"+path, &body)
	if err != nil {
		return err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	return json.Unmarshal(b, out)
}

// controlTime bounds a question to the daemon. The race detector makes the load
// of a policy of a hundred thousand rules take many times as long.
func controlTime() time.Duration {
	if raceDetector {
		return 2 * time.Minute
	}
	return 20 * time.Second
}
