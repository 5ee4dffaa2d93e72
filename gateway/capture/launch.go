//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Grace is how long processes have between SIGTERM and SIGKILL when the
// sandbox is ended from outside.
const Grace = 5 * time.Second

// Sandbox is a namespace of its own with one command in it. Its methods may be
// called by several goroutines, Start and Wait once each.
type Sandbox struct {
	sockets   *Sockets
	link      *link
	process   *os.Process
	ended     chan struct{} // closed when the first process has
	messages  chan message  // closed when it has said its last
	closing   chan struct{}
	name      string // Argv[0]
	terminal  *terminal
	eager     bool        // hand the terminal over at the start
	suspended atomic.Bool // this process stops, or has stopped, with the command
	forwarder atomic.Pointer[forwarder]
	timeout   time.Duration

	closeOnce sync.Once
	closeErr  error
}

// Prepare makes the sandbox: the namespaces, everything that keeps the gateway
// and its secrets away from the command, and the sockets. When it returns,
// nothing of the command runs, and this process cannot be traced (HideProcess).
// A *SetupError says that the host does not allow a part of it; then there is
// no sandbox. The caller calls Close in the end.
func Prepare(c Command) (*Sandbox, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Sandbox{
		ended:    make(chan struct{}),
		messages: make(chan message),
		closing:  make(chan struct{}),
		name:     c.Argv[0],
		terminal: openTerminal(),
		timeout:  c.Timeout,
	}
	l, theirs, err := newLinkPair()
	if err != nil {
		return nil, errors.Join(err, s.terminal.close())
	}
	s.link = l
	if err := errors.Join(s.fork(&c, theirs), theirs.Close(), HideProcess()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.settle(&c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	go s.receive()
	return s, nil
}

// capabilities are what the first process needs in the sandbox's own user
// namespace: to mount, to lay out the network, to give up the rest.
func capabilities() []uintptr {
	return []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETPCAP}
}

// fork starts the first process in new namespaces, in which the caller's user
// and group mean themselves and nobody else exists.
func (s *Sandbox) fork(c *Command, theirs *os.File) error {
	cmd := &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       []string{childName, childWord},
		Env:        []string{}, // not the caller's
		ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
				syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
			AmbientCaps: capabilities(),
			Setpgid:     true,
		},
	}
	// A nil *os.File in these interfaces would not be /dev/null.
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	if c.Stderr != nil {
		cmd.Stderr = c.Stderr
	}
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that forked it ends, so
		// this thread stays until the child has.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := startTraceable(cmd)
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its last message
			close(s.ended)
		}
	}()
	if err := <-started; err != nil {
		return &SetupError{Step: stepNamespaces, Err: err, Hint: namespaceHint(err, procSys)}
	}
	s.process = cmd.Process
	return nil
}

// startTraceable starts cmd while this process may be traced: the files in
// /proc through which a child's user namespace is filled belong to root
// otherwise. No sandbox of this process exists yet, and those of others have no
// name for it.
func startTraceable(cmd *exec.Cmd) error {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return err
	}
	if dumpable == 1 {
		return cmd.Start()
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// settle tells the first process what to do and takes the sockets from it.
func (s *Sandbox) settle(c *Command) error {
	runtimes, err := runtimeDirs(c.Env)
	if err != nil {
		return err
	}
	s.eager = s.terminal.eager(c)
	err = s.link.send(message{Kind: kindSetup, Setup: &setup{
		Argv: c.Argv, Env: c.Env, Dir: c.Dir,
		Runtime:    runtimes,
		Share:      c.Share,
		Hide:       c.Hide,
		Sockets:    socketPaths(),
		ResolvConf: c.ResolvConf,
		Files:      c.Files,
		Over:       c.Over,
		Own:        c.Own,
		Terminals:  terminals(c),
		Terminal:   s.eager,
	}})
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	m, err := s.link.receive()
	if err != nil {
		return errors.New("sandbox: its first process ended while it was made")
	}
	if m.Kind != kindReady {
		return m.err()
	}
	files, err := s.link.receiveFiles(m.Layout.len())
	if err != nil {
		return fmt.Errorf("sandbox: take over sockets: %w", err)
	}
	s.sockets, err = socketsFromFiles(files, m.Layout)
	return err
}

// err is the error that a kindFailed message tells.
func (m message) err() error {
	if m.Kind != kindFailed {
		return fmt.Errorf("sandbox: unexpected message %d", m.Kind)
	}
	e := &SetupError{Step: m.Step, Hint: m.Hint, Err: errors.New(m.Text)}
	if m.Errno != 0 {
		e.Err = &toldError{text: m.Text, errno: m.Errno}
	}
	return e
}

// toldError is an error of the other process, of which an errno was left.
type toldError struct {
	text  string
	errno syscall.Errno
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.errno }

// runtimeDirs are the runtime directories of the caller and of the command.
func runtimeDirs(env []string) ([]string, error) {
	var dirs []string
	for _, list := range [][]string{os.Environ(), env} {
		dir, ok := variable(list, "XDG_RUNTIME_DIR")
		if !ok || !filepath.IsAbs(dir) {
			continue
		}
		dir = filepath.Clean(dir)
		for _, needed := range []string{"/usr", "/etc", "/proc", variableOr(list, "HOME", "/")} {
			if within(filepath.Clean(needed), dir) {
				return nil, &SetupError{
					Step: "cover XDG_RUNTIME_DIR=" + dir, Err: fmt.Errorf("%s lies in it and is needed", needed),
					Hint: "set it to a directory of its own, or unset it",
				}
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// terminals are the device files that the command's standard files are.
func terminals(c *Command) []string {
	var names []string
	for _, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f == nil {
			continue
		}
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
			continue
		}
		name, err := os.Readlink(descriptor(int(f.Fd())))
		if err == nil && strings.HasPrefix(name, "/dev/") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Sockets are what the sandbox's network ends in. They are closed by Close.
func (s *Sandbox) Sockets() *Sockets { return s.sockets }
