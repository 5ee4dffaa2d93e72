//go:build linux

package audit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// ext4 mounts a file system of its own at dir for one test, on a loop device.
func ext4(t *testing.T, dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 16<<20))
	if out, err := exec.Command("/sbin/mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s; test/deps.sh installs it", err, out)
	}
	must(t, unix.Mount(loop(t, image), dir, "ext4", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // the test may have done it
	must(t, os.Chmod(dir, 0o700))
}

// loop makes the file a block device until nobody uses it. In a container the
// kernel's nodes may be missing.
func loop(t *testing.T, file string) string {
	t.Helper()
	nodes := t.TempDir()
	control := filepath.Join(nodes, "control")
	must(t, unix.Mknod(control, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))))
	c, err := os.OpenFile(control, os.O_RDWR, 0)
	must(t, err)
	defer c.Close()
	back, err := os.OpenFile(file, os.O_RDWR, 0)
	must(t, err)
	defer back.Close()
	for range 20 { // another process may take the same one
		n, err := unix.IoctlRetInt(int(c.Fd()), unix.LOOP_CTL_GET_FREE)
		must(t, err)
		path := filepath.Join(nodes, fmt.Sprint("loop", n))
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		d, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		t.Cleanup(func() { d.Close() })
		if err = unix.IoctlSetInt(int(d.Fd()), unix.LOOP_SET_FD, int(back.Fd())); err == nil {
			info := &unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}
			must(t, unix.IoctlLoopSetStatus64(int(d.Fd()), info))
			return path
		}
	}
	t.Fatal("no loop device is free")
	return ""
}

// TestReadOnlyUnderneath: a file system that the kernel makes read-only under
// the open segment, as it does after an error of the disk, stops traffic and
// loses no record. When there is one in its place that can be written, the log
// goes on there, without a restart.
func TestReadOnlyUnderneath(t *testing.T) {
	l := begin(t)
	host := l.Unique("underneath") + ".loss.test"
	state := t.TempDir()
	dir := filepath.Join(state, "audit")
	must(t, os.Chmod(state, 0o700))
	must(t, os.Mkdir(dir, 0o700))
	ext4(t, dir)
	g := l.Gateway(t, lab.GatewayOptions{State: state, Policy: lossPolicy(host)})
	a := &attempts{host: host, s: g.Attach(t, "dev"), no: map[string]int{}}
	if r := a.one(t); r != "" {
		t.Fatalf("before: %s", r)
	}
	// What ext4 does on an error of its own.
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "abort"))
	if !lab.Within(20*time.Second, func() bool { a.one(t); return a.no["audit_unavailable"]+a.no["none"] > 3 }) {
		t.Fatalf("a read-only file system stopped nothing: %+v", a.no)
	}
	before := len(l.Origins.Host(host).Requests())
	for range 10 {
		a.one(t)
	}
	if after := len(l.Origins.Host(host).Requests()); after != before {
		t.Errorf("%d requests left without a record", after-before)
	}
	kept, err := os.ReadFile(filepath.Join(dir, "audit-000001.jsonl"))
	must(t, err)
	must(t, unix.Unmount(dir, unix.MNT_DETACH)) // another one: the folder below
	must(t, os.WriteFile(filepath.Join(dir, "audit-000001.jsonl"), kept, 0o600))
	if !lab.Within(20*time.Second, func() bool { return a.one(t) == "" }) {
		t.Fatalf("no recovery without a restart: %+v\n%s", a.no, g.Stderr())
	}
	if gap := noted(notes(t, dir), audit.ActionGap); gap == nil || gap.Count == 0 || !gap.Alerting() {
		t.Errorf("the gap: %+v", gap)
	}
	lostNothing(t, l, host, dir)
	if r := chained(t, dir); r.Segments != 2 {
		t.Errorf("%d segments, want 2", r.Segments)
	}
}
