package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"sallyport/gateway/capture"
)

// keeper has systemd keep the listening sockets of captures while no daemon
// runs (its file descriptor store, sd_notify(3)), so that what comes meanwhile
// waits instead of being refused. A place, such as a namespace or an interface,
// has one set of sockets; its name also says whose they are, because what
// waits in them belongs to nobody else. It is safe for concurrent use.
type keeper struct {
	log    hclog.Logger
	notify string // address of the service manager; "" there is none, and nothing is kept

	mu   sync.Mutex
	back map[string]map[string][]*os.File // place → whose → what an earlier process left
	kept map[string]string                // place → name under which its sockets are kept now
}

const (
	// keptNameMax is the longest name that systemd takes, in bytes.
	keptNameMax = 255
	// keeperTime bounds how long systemd may take to do what it is told.
	keeperTime = 5 * time.Second
)

// newKeeper takes in what systemd handed to the process. It is called before
// any other process is started, which would get the descriptors too.
func newKeeper(log hclog.Logger) *keeper {
	k := &keeper{log: log, notify: os.Getenv("NOTIFY_SOCKET"), back: map[string]map[string][]*os.File{}, kept: map[string]string{}}
	for _, f := range activation.Files(true) {
		place, whose, _ := strings.Cut(f.Name(), keptSeparator)
		if k.back[place] == nil {
			k.back[place] = map[string][]*os.File{}
		}
		k.back[place][whose] = append(k.back[place][whose], f)
	}
	return k
}

// keptSeparator is in no place and in no owner.
const keptSeparator = "+"

// keptName is a name that systemd takes: ASCII, and no colon.
func keptName(place, whose string) string { return place + keptSeparator + whose }

// keptPlace is the first part of a name, from a word and what it stands for.
func keptPlace(kind, name string) string {
	return kind + "-" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
}

// digest is the second part of a name, where whose the sockets are is more than
// an ID.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// open opens sockets at a place, with what was left for it, and has them kept.
// A place without a name has nothing kept.
func (k *keeper) open(place, whose string, open func(*capture.Kept) (*capture.Sockets, error)) (*capture.Sockets, error) {
	if k == nil || place == "" {
		return open(nil)
	}
	left := k.take(place, whose)
	defer left.Close()
	s, err := open(left)
	switch {
	case err == nil:
		k.keep(place, whose, s)
	case left != nil: // if not, it may be another's who is open there
		k.forget(place)
	}
	return s, err
}

// take returns what was left for a place by the same owner, or nil. What
// another left there is let go of: who was to be answered is no more.
func (k *keeper) take(place, whose string) *capture.Kept {
	k.mu.Lock()
	left := k.back[place]
	delete(k.back, place)
	k.mu.Unlock()
	for other, files := range left {
		if other != whose {
			k.drop(keptName(place, other), files)
		}
	}
	if left[whose] == nil {
		return nil
	}
	name := keptName(place, whose)
	k.mu.Lock()
	k.kept[place] = name
	k.mu.Unlock()
	return &capture.Kept{Files: left[whose], Drop: func() error {
		k.log.Warn("listening sockets that were kept are not those of the capture; others are opened", "name", name)
		return k.remove(name)
	}}
}

// keep has the sockets of a capture kept.
func (k *keeper) keep(place, whose string, s *capture.Sockets) {
	if k.notify == "" || s.Reused {
		return
	}
	files, err := s.Listening()
	if err == nil {
		err = k.store(place, whose, files)
	}
	k.warn(place, err)
}

func (k *keeper) warn(place string, err error) {
	if err != nil {
		k.log.Warn("listening sockets are not kept over a restart", "capture", place, "error", err)
	}
}

// store hands descriptors to systemd and closes them. Those that are poked
// would wake it: it is told not to look.
func (k *keeper) store(place, whose string, files []*os.File) error {
	defer closeAll(files)
	name := keptName(place, whose)
	if len(name) > keptNameMax {
		return fmt.Errorf("name of %d bytes", len(name))
	}
	k.mu.Lock()
	k.kept[place] = name
	k.mu.Unlock()
	return k.tell("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, files)
}

// forget lets go of the sockets of a place, whose capture has ended.
func (k *keeper) forget(place string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	name := k.kept[place]
	delete(k.kept, place)
	k.mu.Unlock()
	if name == "" {
		return
	}
	if err := k.remove(name); err != nil {
		k.log.Warn("listening sockets of a capture that has ended are still kept", "name", name, "error", err)
	}
}

// forgetRest lets go of what nobody has taken: its capture, or its sandbox, is
// no more.
func (k *keeper) forgetRest() {
	if k == nil {
		return
	}
	k.mu.Lock()
	back := k.back
	k.back = map[string]map[string][]*os.File{}
	k.mu.Unlock()
	for place, left := range back {
		for whose, files := range left {
			k.drop(keptName(place, whose), files)
		}
	}
}

func (k *keeper) drop(name string, files []*os.File) {
	closeAll(files)
	if err := k.remove(name); err != nil {
		k.log.Warn("listening sockets that are of no use are still kept", "name", name, "error", err)
	}
}

// remove makes systemd close what it has under a name, and waits until it has:
// before, nobody else can listen there.
func (k *keeper) remove(name string) error {
	if k.notify == "" {
		return nil
	}
	return errors.Join(k.tell("FDSTOREREMOVE=1\nFDNAME="+name, nil), k.barrier())
}

// barrier waits until systemd has read everything that it was told.
func (k *keeper) barrier() error {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	if err := errors.Join(k.tell("BARRIER=1", []*os.File{theirs}), theirs.Close()); err != nil {
		return err
	}
	if err := ours.SetReadDeadline(time.Now().Add(keeperTime)); err != nil {
		return err
	}
	_, err = ours.Read(make([]byte, 1)) // until its end: systemd closes the other one
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("systemd has not answered for %v: %w", keeperTime, err)
	}
	return nil
}

// tell sends one message, with descriptors.
func (k *keeper) tell(state string, files []*os.File) error {
	var fds []int
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return err
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	// Package net does not send descriptors over a datagram socket that is
	// connected, and one that is not needs a name.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(keeperTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
		return os.NewSyscallError("SO_SNDTIMEO", err)
	}
	for {
		err := unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: k.notify}, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it was only handed on
	}
}
