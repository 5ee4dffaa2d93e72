//go:build linux

package capture

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// message is what the launcher and the first process of a sandbox say to one
// another over a stream socket. Kind says which other fields count.
type message struct {
	Kind messageKind

	Setup  *setup         // kindSetup
	Layout layout         // kindReady; its descriptors follow
	Signal syscall.Signal // kindSignal; kindStopped: what stopped it
	Holds  bool           // kindStopped: a group of the sandbox has the terminal
	Grace  time.Duration  // kindEnd: between SIGTERM and SIGKILL

	Step  string        // kindFailed
	Text  string        // kindFailed: what went wrong, when it was no errno
	Hint  string        // kindFailed
	Errno syscall.Errno // kindFailed, kindNoExec

	Status syscall.WaitStatus // kindExited
	CPU    time.Duration      // kindExited
	MaxRSS int64              // kindExited; bytes
}

type messageKind uint8

const (
	_              messageKind = iota
	kindSetup                  // launcher: make the sandbox of Setup
	kindReady                  // sandbox: made; descriptors follow
	kindFailed                 // sandbox: not made, and never will be
	kindStart                  // launcher: run the command
	kindStarted                // sandbox: it runs
	kindNoExec                 // sandbox: it cannot be run
	kindSignal                 // launcher: send Signal to the command
	kindForeground             // launcher: give the terminal to the command's group and continue it
	kindEnd                    // launcher: end every process
	kindStopped                // sandbox: the command was stopped
	kindExited                 // sandbox: nothing is left of it
)

// setup is what the first process has to know. All paths are absolute.
type setup struct {
	Argv, Env  []string
	Dir        string
	Runtime    []string // runtime directories ($XDG_RUNTIME_DIR) to be private
	Share      []string
	Hide       []string
	Sockets    []string // unix sockets that were seen in the file system
	ResolvConf string
	Files      map[string][]byte
	Over       map[string]string
	Own        map[string]string
	Terminals  []string // devices that stdin, stdout and stderr are
	Terminal   bool     // hand the terminal over as soon as the command runs
}

// maxMessage bounds a message in bytes.
const maxMessage = 64 << 20

// link is one end of the socket between the two.
type link struct{ conn *net.UnixConn }

// newLinkPair returns the launcher's end and the file that the sandbox inherits.
func newLinkPair() (*link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "sandbox")
	ours, err := newLink(os.NewFile(uintptr(fds[0]), "launcher"))
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// newLink takes f over.
func newLink(f *os.File) (*link, error) {
	c, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is not a unix socket", c), c.Close())
	}
	return &link{conn: conn}, nil
}

func (l *link) close() error { return l.conn.Close() }

// send writes m: its length in four bytes and its gob, at once, so that senders
// need no lock.
func (l *link) send(m message) error {
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	if err := gob.NewEncoder(&b).Encode(m); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	_, err := l.conn.Write(b.Bytes())
	return err
}

// receive reads the next message. It returns io.EOF when the other side is gone.
func (l *link) receive() (message, error) {
	var size [4]byte
	if _, err := io.ReadFull(l.conn, size[:]); err != nil {
		return message{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxMessage {
		return message{}, fmt.Errorf("message of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(l.conn, b); err != nil {
		return message{}, err
	}
	var m message
	err := gob.NewDecoder(bytes.NewReader(b)).Decode(&m)
	return m, err
}

// sendFiles sends descriptors; files may be closed afterwards.
func (l *link) sendFiles(files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	_, _, err := l.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	return err
}

// receiveFiles receives the n descriptors that sendFiles sent.
func (l *link) receiveFiles(n int) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*n))
	_, oobn, flags, _, err := l.conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return nil, errors.New("more descriptors than announced")
	}
	control, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range control {
		fds, err := unix.ParseUnixRights(&control[i])
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "sandbox socket"))
		}
	}
	if len(files) != n {
		closeFiles(files)
		return nil, fmt.Errorf("%d descriptors instead of %d", len(files), n)
	}
	return files, nil
}
