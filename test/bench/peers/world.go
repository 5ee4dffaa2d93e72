//go:build linux

package peers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"sallyport/test/bench/load"
	"sallyport/test/bench/measure"
	"sallyport/test/bench/origin"
)

// World is where the benchmark takes place.
type World struct {
	Dir    string // of everything that is written
	Self   string // this program
	Binary string // sallyport
	Origin *Process
	Box    *Client // where load for peers with an address comes from
	links  int
	spaces *Process
	procs  []*Process
}

// Process is a program that was started.
type Process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// PID is the process's.
func (p *Process) PID() int { return p.Process.Pid }

// Stop ends the process and those below it, in order if they can.
func (p *Process) Stop() {
	below := measure.Tree(p.PID())
	_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
	ended := make(chan struct{})
	go func() { _ = p.Wait(); close(ended) }() // how it ended does not matter
	for _, wait := range []time.Duration{2 * time.Second, 5 * time.Second} {
		select {
		case <-ended:
		case <-time.After(wait):
			_ = p.Process.Signal(syscall.SIGTERM) // some end at once when they are told again
		}
	}
	for _, pid := range below {
		_ = syscall.Kill(pid, syscall.SIGKILL) // those that are left
	}
	<-ended
}

// Open lays out the world. This process must be in network and mount
// namespaces of its own.
func Open(dir, binary string) (*World, error) {
	self := filepath.Join(dir, "bench") // where a sandbox sees it too
	w := &World{Dir: dir, Self: self, Binary: binary}
	err := errors.Join(own(), resolvers(dir), w.authorities(), copyProgram(self))
	if err != nil {
		return nil, err
	}
	if w.Origin, err = w.spawn("origin", true, nil, self, "origin", dir); err != nil {
		return nil, err
	}
	if err := linkOrigin(w.Origin.PID()); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w.Origin.in, "go\n"); err != nil {
		return nil, err
	}
	w.Box, err = w.NewClient(true)
	return w, err
}

func copyProgram(to string) error {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o755)
}

// authorities are those of the origin's certificate and of the proxies'.
func (w *World) authorities() error {
	if _, err := origin.NewAuthority(w.Dir, "origin"); err != nil {
		return err
	}
	a, err := origin.NewAuthority(w.Dir, "proxy")
	if err != nil {
		return err
	}
	return a.Issue(w.Dir, "names", "*."+origin.Zone, "*."+origin.NewZone)
}

// spawn starts a program whose standard input and output are ours, in a
// network namespace of its own if it is to be alone.
func (w *World) spawn(name string, alone bool, env []string, argv ...string) (*Process, error) {
	p := &Process{Cmd: exec.Command(argv[0], argv[1:]...)}
	log, err := os.OpenFile(filepath.Join(w.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.Stderr, p.Env = log, append(os.Environ(), env...)
	p.SysProcAttr = &syscall.SysProcAttr{}
	if alone {
		p.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	if p.in, err = p.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	w.procs = append(w.procs, p)
	return p, nil
}

// Client is a load client in a namespace of its own.
type Client struct {
	*Process
	Number int // of its link; 0 is the first
}

// NewClient starts one, with a link to the proxies' host or without any.
func (w *World) NewClient(linked bool) (*Client, error) {
	p, err := w.spawn("client", true, nil, w.Self, "client")
	if err != nil {
		return nil, err
	}
	c := &Client{Process: p}
	if linked {
		c.Number = w.links
		w.links++
		return c, linkClient(p.PID(), c.Number)
	}
	return c, nil
}

// Do has a job done. It calls before when all is prepared, and after when it
// is done, while idle connections still stand.
func (c *Client) Do(j load.Job, before, after func()) (load.Result, error) {
	var r load.Result
	line, err := json.Marshal(j)
	if err != nil {
		return r, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return r, err
	}
	if err := c.read(&r); err != nil || !r.Ready {
		return r, errors.Join(errors.New("the client did not become ready"), err)
	}
	before()
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		return r, err
	}
	r = load.Result{}
	if err := c.read(&r); err != nil {
		return r, err
	}
	after()
	if j.Kind == load.Idle {
		_, err = io.WriteString(c.in, "end\n")
	}
	return r, err
}

func (c *Client) read(into any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return json.Unmarshal(line, into)
}

// Spaces are paths of n network namespaces without a link, made once.
func (w *World) Spaces(n int) ([]string, error) {
	if w.spaces == nil {
		p, err := w.spawn("spaces", false, nil, w.Self, "spaces", strconv.Itoa(n))
		if err != nil {
			return nil, err
		}
		w.spaces = p
	}
	line, err := w.spaces.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	var out []string
	return out, json.Unmarshal(line, &out)
}

// said is the end of what a program has written.
func (w *World) said(name string) string {
	text, err := os.ReadFile(filepath.Join(w.Dir, name+".log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-1000):])
}

// Close ends everything.
func (w *World) Close() {
	for i := len(w.procs) - 1; i >= 0; i-- {
		_ = w.procs[i].in.Close() // clients end by themselves
		_ = w.procs[i].Process.Kill()
		_ = w.procs[i].Wait() // it was killed
	}
	_ = syscall.Unmount("/etc/resolv.conf", syscall.MNT_DETACH) // goes with the namespace
}
