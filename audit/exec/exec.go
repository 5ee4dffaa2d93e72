// Package exec hands notices of alerts to a command.
package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sallyport/audit"
)

// Config of a Sink. Command is required.
type Config struct {
	Command []string      // argv; no shell
	Env     []string      // beside PATH and the SALLYPORT_ variables; nothing of the gateway's own is inherited
	Timeout time.Duration // 0 is 30 s; then the command and its children are killed
}

// Sink is a command. It gets the notice as one line of JSON on standard input,
// and has accepted it when it exits with 0.
type Sink struct{ c Config }

// New returns a Sink.
func New(c Config) (*Sink, error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return nil, errors.New("exec: command is required")
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	return &Sink{c: c}, nil
}

// maxOutput is as much of the command's output as an error shows, in bytes.
const maxOutput = 512

// Send runs the command.
func (s *Sink) Send(ctx context.Context, a audit.Alert) error {
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	body, err := json.Marshal(a)
	if err != nil {
		return audit.Permanent(err)
	}
	out := &head{}
	cmd := exec.CommandContext(ctx, s.c.Command[0], s.c.Command[1:]...)
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(append(body, '\n'))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"SALLYPORT_ALERT=" + audit.Escape(a.Name, 100), "SALLYPORT_STATE=" + a.State, "SALLYPORT_SEVERITY=" + string(a.Severity), "SALLYPORT_ID=" + a.ID,
	}, s.c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("took longer than %s", s.c.Timeout)
		}
		err = fmt.Errorf("command %s: %w", audit.Escape(s.c.Command[0], 100), err)
		if said := strings.Join(strings.Fields(string(out.b)), " "); said != "" {
			err = fmt.Errorf("%w: %s", err, audit.Escape(said, 200))
		}
		return err
	}
	return nil
}

// head keeps the beginning of what is written to it.
type head struct{ b []byte }

func (h *head) Write(p []byte) (int, error) {
	h.b = append(h.b, p[:min(len(p), maxOutput-len(h.b))]...)
	return len(p), nil
}
