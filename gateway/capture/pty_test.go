//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// console is a pseudo-terminal with an interactive shell at it, as a user has.
type console struct {
	t      *testing.T
	master *os.File
	shell  int // process
	*transcript
}

// launchCommand is how the shell of a console runs a launcher: the test binary
// may lie where this user cannot go, so the shell has it open.
const launchCommand = "/proc/self/fd/9 play launch "

// openPTY opens a pseudo-terminal; the caller closes both ends.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	control(t, master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func newConsole(t *testing.T) *console {
	t.Helper()
	master, slave := openPTY(t)
	defer slave.Close()
	binary, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	shell := exec.Command("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
	shell.Dir = "/"
	shell.Env = []string{"PATH=/usr/bin:/bin", "PS1=host> ", "TERM=dumb", "HISTFILE="}
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.ExtraFiles = make([]*os.File, 7)
	shell.ExtraFiles[6] = binary // descriptor 9
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, master: master, shell: shell.Process.Pid, transcript: newTranscript()}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return // EIO: the shell and all else has left the terminal
			}
			_, _ = c.Write(buffer[:n])
		}
	}()
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
		master.Close()
		<-gone
	})
	expect(t, c.transcript, "host> ")
	c.size(80, 24)
	return c
}

// control does not use Fd, after which Close would wait for Read.
func control(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		var done error
		err = raw.Control(func(fd uintptr) { done = do(int(fd)) })
		err = errors.Join(err, done)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// enter types text and waits for each of wants, in the order of the output that
// comes from here on.
func (c *console) enter(text string, wants ...string) {
	c.t.Helper()
	c.reset()
	if _, err := c.master.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
	for _, want := range wants {
		expect(c.t, c.transcript, want)
	}
}

func (c *console) size(columns, rows uint16) {
	c.t.Helper()
	control(c.t, c.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// away waits until the shell of the console has given the terminal to a job, and
// returns its process group.
func (c *console) away() (group int) {
	c.t.Helper()
	c.until("the shell keeps the terminal", func() bool {
		control(c.t, c.master, func(fd int) (err error) {
			group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
			return err
		})
		return group != c.shell
	})
	return group
}

// front waits until a program runs in the terminal's foreground, and is not
// stopped: what is typed then is for it.
func (c *console) front(program string) {
	c.t.Helper()
	c.until(program+" is not in front", func() bool { return slices.Contains(running(c.t, statGroup, c.away()), program) })
}

// runs waits until a program runs anywhere in the console's session.
func (c *console) runs(program string) {
	c.t.Helper()
	c.until(program+" does not run", func() bool { return slices.Contains(running(c.t, statSession, c.shell), program) })
}

func (c *console) until(not string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(expectTime); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s; the terminal has\n%s", not, c.String())
		}
	}
}

// Fields of proc_pid_stat(5), behind the name: state, parent, group, session.
const statGroup, statSession = 2, 3

// running are the names of the processes of a group or session that are not
// stopped.
func running(t *testing.T, field, id int) (names []string) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		before, after, _ := strings.Cut(string(b), ") ")
		_, name, _ := strings.Cut(before, "(")
		f := strings.Fields(after)
		if len(f) > statSession && f[field] == strconv.Itoa(id) && f[0] != "T" && f[0] != "Z" {
			names = append(names, name)
		}
	}
	return names
}

func TestTerminalInterruptReachesTheCommandAlone(t *testing.T) {
	c := newConsole(t)
	c.enter(launchCommand+"sh -c 'echo ready; exec sleep 100'\n", "ready\n")
	c.front("sleep")
	c.enter(ctrlC, "[ended code=130 signal=2 timeout=false]", "host> ")
	c.enter("echo still $((40+2))\n", "still 42")
	// ^C went there because the command had the terminal without asking.
	c.enter(launchCommand+`sh -c 'for i in $(seq 300); do [ $(ps -o tpgid= -p $$) = $(ps -o pgid= -p $$) ] && echo in front && break; sleep 0.1; done; exit 3'`+"\n",
		"in front\n", "[ended code=3", "host> ")
}

func TestTerminalStopAndContinue(t *testing.T) {
	c := newConsole(t)
	c.enter(launchCommand+"sh -c 'echo ready; sleep 100; echo woke'\n", "ready\n")
	c.front("sleep")
	c.enter(ctrlZ, "Stopped", "host> ")
	c.enter("jobs\n", "[1]+  Stopped")
	c.enter("fg\n", "play launch")
	c.front("sleep")
	c.enter(ctrlZ, "Stopped", "host> ")
	c.enter("bg\n", "host> ")
	c.enter("fg\n", "play launch")
	c.away() // to the launcher: the command has not asked for it
	c.enter(ctrlC, "[ended code=130", "host> ")
}

func TestTerminalJobControlInside(t *testing.T) {
	c := newConsole(t)
	c.enter(launchCommand+"bash --norc --noprofile --noediting -i\n", "box> ")
	if text := c.String(); strings.Contains(text, "no job control") || strings.Contains(text, "cannot set terminal") {
		t.Errorf("the shell inside complains:\n%s", text)
	}
	c.enter("tty; echo session $(ps -o tpgid= -p $$ | tr -d ' ')\n", "/dev/pts/", "session ")
	c.size(132, 43)
	c.enter("stty size\n", "43 132")
	c.enter("sleep 100\n", "sleep 100\n")
	c.front("sleep")
	c.enter(ctrlZ, "Stopped", "box> ")
	c.enter("jobs\n", "[1]+  Stopped")
	c.enter("fg\n", "sleep 100\n")
	c.front("sleep")
	c.enter(ctrlC, "box> ")
	c.enter("echo code $?\n", "code 130")
	c.enter("cat &\n", "box> ")
	c.enter("until jobs | grep -q Stopped; do sleep 0.05; done; echo seen $((1+1))\n", "seen 2", "box> ")
	c.enter("kill %1; suspend\n", "Stopped", "host> ")
	c.enter("echo between $((1+1))\n", "between 2")
	c.enter("fg\n", "play launch")
	c.front("bash")
	c.enter("echo back $((2+2))\n", "back 4", "box> ")
	c.enter("exit 7\n", "[ended code=7 signal=0", "host> ")
	c.enter("cat\n", "cat\n")
	c.front("cat")
	c.enter(ctrlC, "host> ")
}

// TestTerminalIsBackBeforeTheCommandGoesOn: a shell inside that is continued
// before it has the terminal again could read nothing from it, and would end.
func TestTerminalIsBackBeforeTheCommandGoesOn(t *testing.T) {
	c := newConsole(t)
	c.enter(launchCommand+"bash --norc --noprofile --noediting -i\n", "box> ")
	for i := range 300 {
		c.enter("suspend\n", "Stopped", "host> ")
		c.enter("fg\n", "play launch")
		c.front("bash")
		c.enter(fmt.Sprintf("echo back $((%d+1))\n", i), fmt.Sprintf("back %d", i+1), "box> ")
	}
	c.enter("exit 7\n", "[ended code=7 signal=0", "host> ")
}

func TestTerminalWindowSizeFollows(t *testing.T) {
	c := newConsole(t)
	c.enter(launchCommand+`bash -c 'trap "stty size; exit" WINCH; echo ready; while :; do sleep 0.02; done'`+"\n", "ready\n")
	c.front("bash")
	c.reset() // before what it writes at once
	c.size(101, 33)
	for _, want := range []string{"33 101", "[ended code=0", "host> "} {
		expect(t, c.transcript, want)
	}
}

// TestTerminalIsGivenOnDemand: in a script or a pipeline the terminal stays
// where it is until the command asks for it.
func TestTerminalIsGivenOnDemand(t *testing.T) {
	c := newConsole(t)
	c.enter("sh -c '"+launchCommand+`bash -c "read -p question: x; echo answer \$x"; echo after'`+"\n", "question:")
	c.enter("forty\n", "answer forty", "[ended code=0", "after", "host> ")
	c.enter(launchCommand+"seq 3 | cat\n", "1\n2\n3\n", "[ended code=0", "host> ")
	c.enter("sh -c '"+launchCommand+`sh -c "echo up\$((1+1)); sleep 100"; echo after'`+"\n", "up2")
	c.runs("sleep")
	c.enter(ctrlC, "[ended code=130", "host> ")
	c.enter(launchCommand+`sh -c 'echo up$((2+2)); sleep 100' | cat`+"\n", "up4")
	c.runs("sleep")
	c.enter(ctrlC, "host> ")
	c.enter("echo still $((40+2))\n", "still 42")
}

func TestTerminalModesAreRestored(t *testing.T) {
	c := newConsole(t)
	c.enter(launchCommand+"sh -c 'stty raw -echo; echo ready; kill -KILL $$'\n", "ready", "[ended code=137", "host> ")
	c.enter("stty -a\n", " icanon", " echo ")
}

func TestTerminalCannotBeTypedInto(t *testing.T) {
	c := newConsole(t)
	c.enter(launchCommand+"/proc/self/exe play attack terminal\n", "typed\n", "[ended code=0", "host> ")
	if text := c.String(); strings.Contains(text, "LEAK") {
		t.Error(text)
	}
}

// TestTerminalHangup: a terminal that goes away ends the command.
func TestTerminalHangup(t *testing.T) {
	c := newConsole(t)
	marker := fmt.Sprintf("3000.%d", os.Getpid())
	c.enter(launchCommand+"sh -c 'echo ready; sleep "+marker+"'\n", "ready\n")
	c.master.Close()
	c.until("the command outlives its terminal", func() bool { return exec.Command("pgrep", "-f", "sleep "+marker).Run() != nil })
}
