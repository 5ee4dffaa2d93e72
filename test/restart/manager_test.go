//go:build linux

// Package restart_test holds that a restart of the daemon under systemd loses
// no connection and no question, and gives none to whom it does not belong.
package restart_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/test/lab"
)

// manager is systemd itself, as the manager of a user's services: the machine
// need not have been started with it. It has namespaces of mounts, processes
// and control groups of its own.
type manager struct {
	g    *lab.Gateway
	pid  int // of the program that made its namespaces
	dir  string
	hold string // while this file is there no daemon is started
	down string // is there when the daemon before has ended
}

// private starts systemd in $DIR with control groups of its own.
const private = `set -eu
name=sallyport-test-$$-$(date +%s)
groups=/sys/fs/cgroup
[ ! -d /sys/fs/cgroup/systemd ] || groups="/sys/fs/cgroup/systemd /sys/fs/cgroup/unified"
for g in $groups; do
	mkdir "$g/$name"
	echo "$g/$name" >>"$DIR/groups"
	echo $$ >"$g/$name/cgroup.procs"
done
exec unshare --cgroup --mount --propagation slave --pid --fork --kill-child --mount-proc sh -eu -c '
mkdir "$DIR/cgroup"
if [ -d /sys/fs/cgroup/systemd ]; then
	mount -t tmpfs tmpfs "$DIR/cgroup"
	mkdir "$DIR/cgroup/systemd" "$DIR/cgroup/unified"
	mount -t cgroup -o none,name=systemd cgroup "$DIR/cgroup/systemd"
	mount -t cgroup2 cgroup2 "$DIR/cgroup/unified"
else
	mount -t cgroup2 cgroup2 "$DIR/cgroup"
fi
mount --rbind "$DIR/cgroup" /sys/fs/cgroup
mkdir -p /run/systemd
mount -t tmpfs tmpfs /run/systemd
mkdir /run/systemd/system
mount --bind "$DIR/console" /dev/console
/lib/systemd/systemd --user --unit=sallyport.service --log-target=console --log-level=info &
wait'
`

// fromUnit returns lines of the unit that is shipped.
func fromUnit(t *testing.T, keys ...string) string {
	t.Helper()
	b, err := os.ReadFile("../../examples/systemd/sallyport.service")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, key := range keys {
		line := regexp.MustCompile(`(?m)^` + key + `=.*$`).FindString(string(b))
		if line == "" {
			t.Fatalf("the unit has no %s", key)
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// start starts systemd, and g as its service.
func start(t *testing.T, l *lab.Lab, g *lab.Gateway) *manager {
	t.Helper()
	m := &manager{g: g, dir: t.TempDir()}
	m.hold, m.down = filepath.Join(m.dir, "hold"), filepath.Join(m.dir, "down")
	units := filepath.Join(m.dir, "config", "systemd", "user")
	unit := "[Service]\n" + fromUnit(t, "Type", "NotifyAccess", "Restart", "RestartSec", "FileDescriptorStoreMax", "WatchdogSec", "TimeoutStopSec",
		"LimitNOFILE", "UMask", "CapabilityBoundingSet", "NoNewPrivileges", "RestrictAddressFamilies", "RestrictNamespaces",
		"LockPersonality", "MemoryDenyWriteExecute", "SystemCallArchitectures", "SystemCallErrorNumber", "SystemCallFilter") +
		fmt.Sprintf("ExecStartPre=/bin/sh -c 'touch %[1]s/down; while [ -e %[1]s/hold ]; do sleep 0.05; done'\n", m.dir) +
		fmt.Sprintf("ExecStart=%s serve --config %s\n", l.Binary, filepath.Join(g.Dir, "sallyport.hcl")) +
		fmt.Sprintf("StandardOutput=append:%[1]s\nStandardError=append:%[1]s\n", filepath.Join(g.Dir, "stderr.log"))
	must(t, os.MkdirAll(units, 0o755))
	must(t, os.MkdirAll(filepath.Join(m.dir, "run"), 0o700))
	must(t, os.WriteFile(filepath.Join(m.dir, "console"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(units, "sallyport.service"), []byte(unit), 0o644))
	cmd := exec.Command("sh", "-c", private)
	cmd.Env = append(os.Environ(), "DIR="+m.dir, "XDG_RUNTIME_DIR="+filepath.Join(m.dir, "run"), "XDG_CONFIG_HOME="+filepath.Join(m.dir, "config"))
	out, err := os.Create(filepath.Join(m.dir, "out"))
	must(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	must(t, l.GW.Start(cmd))
	m.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its namespace of processes ends with it
		_ = cmd.Wait()
		m.removeGroups(t)
	})
	m.await(t)
	g.CA, err = os.ReadFile(filepath.Join(g.State, "ca.pem"))
	must(t, err)
	return m
}

// removeGroups removes the control groups that systemd made.
func (m *manager) removeGroups(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.dir, "groups"))
	must(t, err)
	for dir := range strings.FieldsSeq(string(b)) {
		gone := func() bool {
			_ = exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run() // seen below
			_, err := os.Stat(dir)
			return os.IsNotExist(err)
		}
		if !lab.Within(10*time.Second, gone) {
			t.Errorf("control group %s is left behind", dir)
		}
	}
}

// await waits until the daemon serves.
func (m *manager) await(t *testing.T) {
	t.Helper()
	if !lab.Within(lab.StartTime, func() bool { _, err := m.g.Ready(); return err == nil }) {
		console, _ := os.ReadFile(filepath.Join(m.dir, "console"))
		out, _ := os.ReadFile(filepath.Join(m.dir, "out"))
		t.Fatalf("the daemon is not ready:\n%s\n%s\n%s", m.g.Stderr(), console, out)
	}
}

// systemctl runs it inside: systemd answers those whose process it can see.
func (m *manager) systemctl(t *testing.T, args ...string) string {
	t.Helper()
	first, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", m.pid))
	must(t, err)
	inside := []string{"--target=" + strings.TrimSpace(string(first)), "--pid", "--mount", "systemctl", "--user"}
	cmd := exec.Command("nsenter", append(inside, args...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Join(m.dir, "run"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// keeps waits until systemd keeps so many descriptors for the daemon: it is
// told of them, and does not answer.
func (m *manager) keeps(t *testing.T, want int, what string) {
	t.Helper()
	var n int
	if !lab.Within(20*time.Second, func() bool {
		var err error
		n, err = strconv.Atoi(strings.TrimSpace(m.systemctl(t, "show", "--value", "--property=NFileDescriptorStore", "sallyport.service")))
		must(t, err)
		return n == want
	}) {
		t.Errorf("systemd keeps %d descriptors of %s, not %d", n, what, want)
	}
}

// without runs f while the daemon is down, after end has ended it, and waits
// until the next one serves.
func (m *manager) without(t *testing.T, end, f func()) {
	t.Helper()
	must(t, os.WriteFile(m.hold, nil, 0o600))
	must(t, os.Remove(m.down))
	end()
	if !lab.Within(lab.StartTime, func() bool { _, err := os.Stat(m.down); return err == nil }) {
		t.Fatalf("the daemon has not ended:\n%s", m.g.Stderr())
	}
	f()
	must(t, os.Remove(m.hold))
	m.await(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
