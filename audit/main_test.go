package audit

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Variables that make the test binary something else.
const (
	inNamespace = "AUDIT_TEST_NAMESPACE" // it is root of a user namespace of its own
	asWriter    = "AUDIT_TEST_WRITER"    // it writes to the log in this directory until it is killed
	asNotifier  = "AUDIT_TEST_NOTIFIER"  // it spools notices in this state file until it is killed, and sends them to
	receiverURL = "AUDIT_TEST_RECEIVER"  // this address
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(asWriter); dir != "" {
		os.Exit(writerMain(dir))
	}
	if path := os.Getenv(asNotifier); path != "" {
		os.Exit(notifierMain(path, os.Getenv(receiverURL)))
	}
	os.Exit(m.Run())
}

// rerunInNamespace runs the test again as root of a user namespace of its own.
func rerunInNamespace(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in a user namespace: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("did not run in a user namespace:\n%s", out)
	}
}

// writerMain writes records from several goroutines and says the number of
// each on standard output once it is acknowledged.
func writerMain(dir string) int {
	l, err := Open(Options{Dir: dir, SegmentBytes: 32 << 10})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := make(chan string)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				host := fmt.Sprintf("p%d-w%d-%d.test", os.Getpid(), w, i)
				if err := l.Write(denial(host)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				out <- host
			}
		}()
	}
	for host := range out {
		// One write(2) each: a line is in the pipe whole or not at all.
		if _, err := os.Stdout.WriteString(host + "\n"); err != nil {
			return 1
		}
	}
	return 0
}
