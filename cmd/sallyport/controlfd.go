package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"sallyport/audit"
)

// rightsListener accepts connections over which one descriptor may be passed
// (SCM_RIGHTS, see unix(7)).
type rightsListener struct{ net.Listener }

// Accept waits for the next connection.
func (l rightsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if u, ok := c.(*net.UnixConn); ok {
		return &rightsConn{UnixConn: u}, nil
	}
	return c, err
}

// rightsConn keeps the last descriptor that was passed over it.
type rightsConn struct {
	*net.UnixConn
	mu     sync.Mutex
	passed *os.File
	closed bool
}

// Read reads, and takes in what is passed with the bytes. There is room for one
// descriptor; the kernel closes others.
func (c *rightsConn) Read(p []byte) (int, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := c.ReadMsgUnix(p, rights)
	if m > 0 {
		c.keep(rights[:m])
	}
	return max(n, 0), err // it is -1 beside an error
}

func (c *rightsConn) keep(rights []byte) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return // nothing was passed that could be used
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			c.put(os.NewFile(uintptr(fd), "passed"))
		}
	}
}

func (c *rightsConn) put(f *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.passed != nil {
		_ = c.passed.Close() // nobody has asked for it
	}
	if c.passed = f; c.closed {
		_ = f.Close()
	}
}

// take returns what was passed, once, or nil. The caller closes it.
func (c *rightsConn) take() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.passed
	c.passed = nil
	return f
}

// Close closes the connection and what was passed over it.
func (c *rightsConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if f := c.take(); f != nil {
		_ = f.Close() // likewise
	}
	return c.UnixConn.Close()
}

type rightsKey struct{}

// withConn keeps the connection of a call, for what is passed over it.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	ctx = withPeer(ctx, conn)
	if c, ok := conn.(*rightsConn); ok {
		ctx = context.WithValue(ctx, rightsKey{}, c)
	}
	return ctx
}

// passedNamespace returns the descriptor of a network namespace that was passed
// with a call.
func passedNamespace(ctx context.Context) (*os.File, error) {
	c, _ := ctx.Value(rightsKey{}).(*rightsConn)
	if c == nil {
		return nil, errNoRights
	}
	f := c.take()
	if f == nil {
		return nil, errNoRights
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return nil, errors.Join(errors.New("the descriptor that was passed is not a network namespace; pass one of /proc/PID/ns/net"), f.Close())
	}
	return f, nil
}

var errNoRights = errors.New("netns_fd: no descriptor was passed with the call (SCM_RIGHTS)")

// pinDir is the folder below the runtime folder in which namespaces that were
// passed are held.
const pinDir = "netns"

// place gives a namespace that was passed a path that outlives the call and, if
// it can be, a restart: the name that ip netns gave it, else a mount of the
// daemon's own, else that of a process in it, with which it then ends.
func (c *captures) place(f *os.File) (path string, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if path := sameFile(info, "/run/netns/*"); path != "" {
		return path, nil
	}
	path, held := c.pin(f)
	if held == nil {
		return path, nil
	}
	if path := sameFile(info, "/proc/[0-9]*/ns/net"); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("the namespace that was passed has no name and no process, and cannot be held: %w; give it a name (ip netns attach), or have a process in it", held)
}

// sameFile returns the path that leads to a file, among those of a pattern; ""
// if none does.
func sameFile(info os.FileInfo, pattern string) string {
	list, _ := filepath.Glob(pattern) // it is well-formed
	i := slices.IndexFunc(list, func(path string) bool {
		other, err := os.Stat(path)
		return err == nil && os.SameFile(info, other)
	})
	if i < 0 {
		return ""
	}
	return list[i]
}

// pin mounts a namespace in the runtime folder.
func (c *captures) pin(f *os.File) (path string, err error) {
	path = filepath.Join(c.runtime, pinDir, audit.NewID())
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		return "", err
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), path, "", unix.MS_BIND, ""); err != nil {
		return "", errors.Join(os.NewSyscallError("mount", err), os.Remove(path))
	}
	return path, nil
}

// unpin lets go of a namespace that is held. Any other path is left alone.
func (c *captures) unpin(path string) error {
	if filepath.Dir(path) != filepath.Join(c.runtime, pinDir) {
		return nil
	}
	// Not mounted after a boot, or where the mounts of before are gone.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, os.ErrNotExist) {
		return os.NewSyscallError("unmount", err)
	}
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
