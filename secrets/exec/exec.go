// Package exec takes a secret from the output of a command.
package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sallyport/secrets"
)

const (
	defaultTimeout = 30 * time.Second
	// maxOutput holds the longest value with every byte escaped in JSON.
	maxOutput = 6*secrets.MaxValue + 4<<10 // bytes
	maxStderr = 4 << 10                    // bytes that are kept, of which a line is quoted
	// grace is how long the pipes of a command that has ended are waited for.
	grace = time.Second
)

// Config says which command, and how long its output is good.
type Config struct {
	Command []string      // the program's absolute path and its arguments
	TTL     time.Duration // 0: what the output says, else until the gateway ends
	Timeout time.Duration // 0: 30 s
	Env     []string      // names of the gateway's variables that it gets besides PATH, HOME, USER, LANG and TZ
}

type source struct{ c Config }

// New makes a source of c. The command runs at each fetch, not in New.
func New(c Config) (secrets.Source, error) {
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		return nil, errors.New("exec: command is missing")
	case !filepath.IsAbs(c.Command[0]):
		return nil, fmt.Errorf("exec: the program %q is not an absolute path", c.Command[0])
	case c.TTL < 0 || c.Timeout < 0:
		return nil, errors.New("exec: a duration is negative")
	}
	for _, arg := range c.Command {
		if strings.ContainsRune(arg, 0) {
			return nil, errors.New("exec: an argument holds a NUL byte")
		}
	}
	for _, name := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, fmt.Errorf("exec: %q is not the name of a variable", name)
		}
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	return source{c}, nil
}

// Fetch runs the command without a shell, with nothing on its standard input
// and a minimal environment, and reads its output (see parse). When ctx or
// the timeout ends, the command and every process of its group are killed.
func (s source) Fetch(ctx context.Context) (secrets.Fetched, error) {
	bound := s.c.Timeout
	if end, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(end).Round(100*time.Millisecond)) // who asks may not wait as long
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	stdout, stderr := &capped{max: maxOutput}, &capped{max: maxStderr, drop: true}
	err := s.run(ctx, stdout, stderr)
	name := s.c.Command[0]
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return secrets.Fetched{}, fmt.Errorf("command %s: no answer within %s", name, bound)
	case ctx.Err() != nil:
		return secrets.Fetched{}, fmt.Errorf("command %s: %w", name, ctx.Err())
	case stdout.over:
		return secrets.Fetched{}, fmt.Errorf("command %s: output is longer than %d bytes", name, maxOutput)
	case err != nil:
		return secrets.Fetched{}, fmt.Errorf("command %s: %w%s", name, reason(err), quote(stderr.buf.Bytes(), stdout.buf.Bytes()))
	}
	f, err := parse(stdout.buf.Bytes(), time.Now())
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("command %s: %w", name, err)
	}
	if f.TTL == 0 || s.c.TTL > 0 && s.c.TTL < f.TTL {
		f.TTL = s.c.TTL
	}
	return f, nil
}

func (s source) run(ctx context.Context, stdout, stderr *capped) error {
	cmd := exec.CommandContext(ctx, s.c.Command[0], s.c.Command[1:]...)
	cmd.Env = s.environment()
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// The command has ended, and something it left behind holds the
		// pipes. It is still in the group, so the number is not another's.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err = errors.New("left a process behind that holds its output")
	}
	return err
}

func (s source) environment() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range append([]string{"HOME", "USER", "LANG", "TZ"}, s.c.Env...) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// reason takes the path out of an error of starting a program.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// capped keeps the first max bytes. Past them it fails the copy, which ends
// the command by SIGPIPE, or drops the rest.
type capped struct {
	buf  bytes.Buffer
	max  int
	drop bool
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := c.max - c.buf.Len()
	if len(p) <= room {
		return c.buf.Write(p)
	}
	c.buf.Write(p[:room])
	c.over = true
	if c.drop {
		return len(p), nil
	}
	return room, errors.New("output is too long")
}
