//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A sandbox's first process is this program again, started with childWord in
// new namespaces. As process 1 of them it lays out what the command will see,
// opens the sockets, hands them out, runs the command without any privilege,
// reaps what is orphaned and ends when nothing is left. It keeps its
// capabilities, which hold inside the sandbox's user namespace only, to hide
// again what is replaced; nobody in the sandbox may trace or kill it.
const (
	childName = "sallyport"
	childWord = "sandbox-init"
	childLink = 3 // descriptor of the link
)

// ChildMain runs the sandbox's first process if args, the whole of os.Args, ask
// for it. A program that uses Prepare calls it before anything else and exits
// with code when it was handled.
func ChildMain(args []string) (handled bool, code int) {
	if len(args) != 2 || args[0] != childName || args[1] != childWord {
		return false, 0
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "sallyport: error: sandbox-init is started by sallyport run alone")
		return true, 1
	}
	if err := childRun(); err != nil {
		return true, 1 // the launcher was told, or is gone
	}
	return true, 0
}

func childRun() error {
	l, err := newLink(os.NewFile(childLink, "launcher"))
	if err != nil {
		return err
	}
	c, err := newChild(l)
	if err != nil {
		return errors.Join(err, l.send(failure(err)))
	}
	return c.serve()
}

// failure is the message that tells err to the launcher.
func failure(err error) message {
	m := message{Kind: kindFailed, Step: "sandbox", Text: err.Error()}
	if e, ok := errors.AsType[*SetupError](err); ok {
		m.Step, m.Hint, m.Text = e.Step, e.Hint, e.Err.Error()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		m.Errno = errno
	}
	return m
}

// child is the state of a sandbox's first process.
type child struct {
	link   *link
	setup  *setup
	hidden *hidden
	tty    *os.File // the controlling terminal, nil without one
	reaped chan reaped
	orders chan message
	pid    int // of the command, 0 before it runs
}

// newChild makes the sandbox; when it returns, everything that the command
// will see is in place and the launcher has the sockets.
func newChild(l *link) (*child, error) {
	if err := guardChild(); err != nil {
		return nil, err
	}
	m, err := l.receive()
	if err != nil {
		return nil, err
	}
	if m.Kind != kindSetup || m.Setup == nil {
		return nil, fmt.Errorf("launcher sent message %d instead of the setup", m.Kind)
	}
	c := &child{link: l, setup: m.Setup, reaped: make(chan reaped), orders: make(chan message)}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0); err == nil {
		c.tty = tty
	}
	if c.hidden, err = keepAway(m.Setup); err != nil {
		return nil, err
	}
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	return c, c.handOver()
}

// guardChild makes the process fit to be what the command must not touch: it
// cannot be traced, dies with the launcher, lets no signal end it, and its
// descriptors are not inherited.
func guardChild() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &SetupError{Step: "guard the sandbox's first process", Err: err}
	}
	// The end of the link is noticed as well; this is for when nothing runs here.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return &SetupError{Step: "die with the gateway", Err: err}
	}
	catchSignals()
	if err := closeOnExec(childLink); err != nil {
		return &SetupError{Step: "keep descriptors from the command", Err: err}
	}
	return nil
}

// closeOnExec keeps every descriptor from first on from what is executed.
func closeOnExec(first int) error {
	err := unix.CloseRange(uint(first), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return err
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// handOver opens the sockets of the sandbox and gives them to the launcher.
func (c *child) handOver() error {
	files, layout, err := openSandbox()
	if err != nil {
		return &SetupError{Step: stepNetwork, Err: err, Hint: networkHint(err)}
	}
	defer closeFiles(files)
	if err := c.link.send(message{Kind: kindReady, Layout: layout}); err != nil {
		return err
	}
	return c.link.sendFiles(files)
}

// serve waits for the order to start and then stays until nothing is left of
// the command.
func (c *child) serve() error {
	m, err := c.link.receive()
	if err != nil || m.Kind != kindStart {
		return errors.Join(errors.New("launcher gave up"), err)
	}
	pid, execErr, err := c.runCommand()
	switch {
	case err != nil:
		return errors.Join(err, c.link.send(failure(err)))
	case execErr != 0:
		return c.link.send(message{Kind: kindNoExec, Errno: execErr})
	}
	c.pid = pid
	if err := c.link.send(message{Kind: kindStarted}); err != nil {
		return err
	}
	go c.receiveOrders()
	go c.reap()
	return c.loop()
}

// receiveOrders passes on what the launcher says; the channel is closed when
// the launcher is gone.
func (c *child) receiveOrders() {
	defer close(c.orders)
	for {
		m, err := c.link.receive()
		if err != nil {
			return
		}
		c.orders <- m
	}
}

// onOwnThread runs f on a thread that ends with it, so that what f does to its
// thread (credentials, filters, signal mask) stays there and in its children.
func onOwnThread[T any](f func() T) T {
	done := make(chan T)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}
