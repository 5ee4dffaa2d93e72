//go:build linux

package capture

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The command keeps the caller's terminal; there is no pty in between. It runs
// in a process group of its own, so that ^C and ^Z reach it and not the
// gateway, and that it cannot signal the gateway's group. As a shell does, the
// launcher makes that group the terminal's foreground group, takes the terminal
// back when the command stops or ends, and stops itself when the command stops.
//
// The command cannot type into the terminal: commandFilter refuses TIOCSTI and
// TIOCLINUX.

// terminal is the launcher's controlling terminal.
type terminal struct {
	file  *os.File
	group int           // the launcher's own process group
	given bool          // a group of the sandbox has been given the foreground
	modes *unix.Termios // as they were before; nil if they cannot be read
}

// openTerminal returns nil if there is no controlling terminal.
func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: f, group: unix.Getpgrp()}
	if modes, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
		t.modes = modes
	}
	return t
}

func (t *terminal) close() error {
	if t == nil {
		return nil
	}
	return t.file.Close()
}

// foreground is the terminal's foreground process group, 0 if it cannot be told.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// mine says whether the launcher's group has the foreground.
func (t *terminal) mine() bool { return t != nil && t.foreground() == t.group }

// mineSoon is mine, for a command that asks while a shell is about to give the
// terminal to the job.
func (t *terminal) mineSoon() bool {
	for range 10 {
		if t.mine() {
			return true
		}
		if t == nil {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// eager says whether the terminal is handed over at once and not only when the
// command asks for it: the launcher has it and shares its job with nobody, be
// it a script around it or a neighbour in a pipeline, who may need it too.
func (t *terminal) eager(c *Command) bool {
	return t != nil && t.mine() && t.group == os.Getpid() && !isPipe(c.Stdin) && !isPipe(c.Stdout)
}

func isPipe(f *os.File) bool {
	if f == nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// setForeground makes group the terminal's foreground group. The caller may be
// in the background, where that would stop it unless SIGTTOU is blocked.
func setForeground(tty *os.File, group int) error {
	return onOwnThread(func() error {
		var block unix.Sigset_t
		const bit = uint(syscall.SIGTTOU) - 1
		block.Val[bit/wordBits] |= 1 << (bit % wordBits)
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, nil); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, group)
	})
}

// wordBits is the size of a word of Sigset_t.
const wordBits = 32 << (^uint(0) >> 63)

// hand notes that a group of the sandbox is given the foreground, if it is.
func (t *terminal) hand(given bool) {
	if t != nil && given {
		t.given = true
	}
}

// takeBack returns the terminal to the launcher's group and says who had it, 0
// if the sandbox had not.
func (t *terminal) takeBack() (had int, err error) {
	if t == nil || !t.given {
		return 0, nil
	}
	t.given = false
	had = t.foreground()
	if had == t.group {
		return 0, nil
	}
	if err = setForeground(t.file, t.group); errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EIO) {
		return 0, nil // it was hung up: there is no terminal to take back
	}
	return had, err
}

// restore puts the modes back that a command which was killed may have left.
func (t *terminal) restore() error {
	if t == nil || t.modes == nil || !t.mine() {
		return nil
	}
	return unix.IoctlSetTermios(int(t.file.Fd()), unix.TCSETSW, t.modes)
}

// suspend does what a stopped command's parent does under job control: it
// stops with the rest of its job, so that the shell sees it, and goes on when
// the shell continues it. had is the group that had the terminal.
func (t *terminal) suspend(had int) error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(0, syscall.SIGSTOP); err != nil {
		return err
	}
	<-continued // this thread may run on for a moment before the stop
	// The shell gave the terminal back if it continues the job in the foreground.
	if had == 0 || !t.mine() {
		return nil
	}
	t.given = true
	return setForeground(t.file, had)
}

// stoppable says whether a shell is there to continue what stops. The group of
// the session's leader has none above it.
func (t *terminal) stoppable() bool {
	if t == nil {
		return false
	}
	session, err := unix.Getsid(0)
	return err == nil && session != t.group
}

// holdsTerminal says whether a process group of the sandbox has the foreground;
// others have no number here.
func (c *child) holdsTerminal() bool {
	if c.tty == nil {
		return false
	}
	group, err := unix.IoctlGetInt(int(c.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group > 0
}

// giveTerminal makes the process group of pid, the command, the foreground
// group.
func (c *child) giveTerminal(pid int) {
	if c.tty == nil {
		return
	}
	group, err := syscall.Getpgid(pid)
	if err != nil || group <= 1 {
		return // gone, or it has left the group it was given
	}
	// An error means that the group has gone or left the session meanwhile.
	_ = setForeground(c.tty, group)
}
