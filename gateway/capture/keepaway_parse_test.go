//go:build linux

package capture

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const netUnix = "Num       RefCount Protocol Flags    Type St Inode Path\n" +
	"0000000012a04587: 00000003 00000000 00000000 0001 03  1145\n" +
	"ffff8c8d40a4c000: 00000002 00000000 00010000 0001 01 22334 /run/user/1000/bus\n" +
	"ffff8c8d40a4c001: 00000002 00000000 00010000 0001 01     7 /tmp/with  two spaces \n" +
	"ffff8c8d40a4c002: 00000002 00000000 00010000 0005 01 22336 @/tmp/.X11-unix/X0\n" +
	"ffff8c8d40a4c003: 00000002 00000000 00000000 0002 01 22337 public/pickup\n" +
	"ffff8c8d40a4c004: 00000002 00000000 00010000 0001 01 22338 /tmp/new\nline\n"

func TestParseUnixSockets(t *testing.T) {
	want := []unixSocket{
		{22334, "/run/user/1000/bus"}, {7, "/tmp/with  two spaces "}, {22336, "@/tmp/.X11-unix/X0"},
		{22337, "public/pickup"}, {22338, "/tmp/new"},
	}
	if diff := cmp.Diff(want, parseUnixSockets(netUnix), cmp.AllowUnexported(unixSocket{})); diff != "" {
		t.Error(diff)
	}
}

func FuzzUnixSockets(f *testing.F) {
	f.Add(netUnix)
	f.Add("a b c d e f 1 /x")
	f.Add("a b c d e f 18446744073709551616 /x\n\x00 \n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseUnixSockets(text) {
			if s.name == "" {
				t.Errorf("%q has a socket without a name", text)
			}
		}
	})
}

const mountInfo = "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n" +
	"30 21 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n" +
	"31 21 254:0 /home/u /mnt/with\\040space\\134 ro,noatime,nodiratime - ext4 /dev/vda rw\n" +
	"32 21 254:1 / /home rw - ext4 /dev/vdb rw\n" +
	"33 21 254:0 /home /old rw - ext4 /dev/vda rw\n" +
	"short line\n"

func TestParseMounts(t *testing.T) {
	want := []mount{
		{"254:0", "/", "/", unix.MS_RELATIME},
		{"0:20", "/", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME},
		{"254:0", "/home/u", `/mnt/with space\`, unix.MS_RDONLY | unix.MS_NOATIME | unix.MS_NODIRATIME},
		{"254:1", "/", "/home", 0},
		{"254:0", "/home", "/old", 0},
	}
	got := parseMounts(mountInfo)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Fatal(diff)
	}
	for path, want := range map[string][]string{
		"/old/u/secret":           {"/home/u/secret", `/mnt/with space\/secret`},
		`/mnt/with space\/secret`: {"/home/u/secret", "/old/u/secret"},
		"/home/u/secret":          nil, // of the other disk
		"/oldest":                 nil,
	} {
		if diff := cmp.Diff(want, aliases(got, path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func FuzzMounts(f *testing.F) {
	f.Add(mountInfo, "/home/u/secret")
	f.Add(`1 1 1:1 \057\\ /\777 rw`, "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		if !filepath.IsAbs(path) {
			path = "/" + path
		}
		for _, a := range aliases(parseMounts(text), filepath.Clean(path)) {
			if !filepath.IsAbs(a) {
				t.Errorf("alias %q of %q", a, path)
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00token\x00\x00\x00"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(parseEvents(b)); n > len(b)/unix.SizeofInotifyEvent {
			t.Errorf("%d events in %d bytes", n, len(b))
		}
	})
}

func TestWalk(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"up": "a/../a/b", "root": dir + "//a/.", "lost": "a/none/x", "loop": "loop", "file/x": ""} {
		if to == "" {
			if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.Symlink(to, dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]place{
		"a/b":       {real: "/a/b"},
		"up":        {real: "/a/b"},
		"root/b/..": {real: "/a"},
		"lost/y":    {real: "/a/none/x/y", missing: true},
		"none/../a": {real: "/a", missing: true},
		"file/x":    {real: "/file/x", missing: true},
	} {
		got, err := walk(dir + "/" + path)
		if err != nil || got.real != dir+want.real || got.missing != want.missing || got.denied || len(got.steps) == 0 {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	if _, err := walk(dir + "/loop"); err == nil {
		t.Error("a loop of links has no end")
	}
}

// TestFilterFitsItsJumps: a jump of the filter has eight bits.
func TestFilterFitsItsJumps(t *testing.T) {
	for _, a := range abis() {
		if n := len(a.rules()); n > 255 {
			t.Errorf("%d rules for %#x", n, a.audit)
		}
	}
	program, err := commandFilter()
	if err != nil || len(program) > unix.BPF_MAXINSNS {
		t.Errorf("%d instructions, %v", len(program), err)
	}
	for i, ins := range program {
		if ins.Code&0x07 == unix.BPF_JMP && (i+1+int(ins.Jt) >= len(program) || i+1+int(ins.Jf) >= len(program)) {
			t.Errorf("instruction %d jumps out", i)
		}
	}
}
