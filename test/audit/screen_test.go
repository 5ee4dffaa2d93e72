//go:build linux

package audit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/test/lab"
)

// terminal is a program on a terminal of its own.
type terminal struct {
	*os.File
	cmd  *exec.Cmd
	done chan error
	gone chan struct{} // closed when all that was written is read
	mu   sync.Mutex
	out  strings.Builder
}

// onTerminal starts a program on a terminal of 110 by 30.
func onTerminal(t *testing.T, argv ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must(t, err)
	fd := int(master.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 110}))
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer tty.Close()
	p := &terminal{File: master, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan error, 1), gone: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, p.cmd.Start())
	go p.read()
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = master.Close()
	})
	return p
}

func (p *terminal) read() {
	defer close(p.gone)
	buf := make([]byte, 4096)
	for {
		n, err := p.File.Read(buf)
		p.mu.Lock()
		p.out.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text is what the program has written.
func (p *terminal) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// shows waits until the program has written text.
func (p *terminal) shows(t *testing.T, want string) {
	t.Helper()
	if !lab.Within(20*time.Second, func() bool { return strings.Contains(p.text(), want) }) {
		t.Fatalf("no %q on the terminal: %q", want, p.text())
	}
}

func (p *terminal) press(t *testing.T, keys string) {
	t.Helper()
	_, err := p.WriteString(keys)
	must(t, err)
}

// TestWatchOnATerminal: the screen shows a denial as it happens, its details,
// and what would allow it, and leaves the terminal as it was.
func TestWatchOnATerminal(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one("sandbox \"dev\" {\n  allow \"good.test\" { addresses = DOCS }\n}\n")})
	s := g.Attach(t, "dev")
	ask(t, s, "before.evil.test")
	p := onTerminal(t, l.Binary, "watch", "--state", g.State, "--policy", filepath.Join(g.PolicyDir(), "p.hcl"))
	p.shows(t, "before.evil.test")
	ask(t, s, "live.evil.test")
	p.shows(t, "live.evil.test")
	p.press(t, "\r")
	p.shows(t, "generation 1")
	p.press(t, "a")
	p.shows(t, `allow "live.evil.test"`)
	p.press(t, "q")
	select {
	case err := <-p.done:
		if err != nil {
			t.Errorf("watch ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("watch does not end")
	}
	select {
	case <-p.gone:
	case <-time.After(20 * time.Second):
		t.Fatal("watch has ended, and somebody has its terminal open")
	}
	text := p.text()
	leave := strings.LastIndex(text, "\x1b[?1049l")
	if leave < strings.Index(text, "\x1b[?1049h") || !strings.Contains(text[max(leave, 0):], `allow "live.evil.test"`) {
		t.Errorf("the terminal was not left as it was, or the suggestion is not on it: %q", text[max(0, len(text)-600):])
	}
	if out, code := sallyport(t, "watch", "--state", g.State); code != 1 || !strings.Contains(out, "needs a terminal") {
		t.Errorf("without a terminal: exit %d, %s", code, out)
	}
}
