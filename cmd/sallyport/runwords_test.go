package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCommandFiles: what a command line can name, however it is set.
func TestCommandFiles(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv("PATH", "/home/u/bin")
	for _, tt := range []struct {
		argv []string
		want []string // among others
		not  []string
	}{
		{[]string{"python3", "/home/u/dir"}, []string{"/python3", "/home/u/dir"}, nil},
		{[]string{"/usr/bin/x", "--conf=/home/u/a=b"}, []string{"/usr/bin/x", "/home/u/a=b"}, nil},
		{[]string{"sh", "-c", "exec /home/u/mint --raw"}, []string{"/home/u/mint"}, nil},
		{[]string{"sh", "-c", "cd /home/u/d;./mint|/home/u/f>/home/u/log 2>>/home/u/err"}, []string{"/home/u/d", "/mint", "/home/u/f"}, []string{"/home/u/log", "/home/u/err"}},
		{[]string{"sh", "-c", "cat <>/home/u/both; x >&2 /home/u/a; >$(/home/u/b); >`/home/u/c`"}, []string{"/home/u/both", "/home/u/a", "/home/u/b", "/home/u/c"}, nil},
		{[]string{"sh", "-c", `"$HOME"/mint '/home/u/my mint' ~/other ${HOME}/third`}, []string{"/home/u/mint", "/home/u/my mint", "/home/u/other", "/home/u/third"}, nil},
		{[]string{"python3", "-c", `exec(open("/home/u/x.py").read())`}, []string{"/home/u/x.py"}, nil},
		{[]string{"curl", "-d@/home/u/body", "-K/home/u/conf", "file:///home/u/doc"}, []string{"/home/u/body", "/home/u/conf", "/home/u/doc"}, nil},
		{[]string{"sh", "-c", "PATH=$PATH:/opt/x mint"}, []string{"/opt/x"}, []string{"/home/u/bin"}},
		{[]string{"sh", "-c", "cat /proc/uptime /sys/x | tee /dev/stderr; . /dev/shm/x", "/proc/uptime"}, []string{"/dev/shm/x"}, []string{"/proc/uptime", "/sys/x", "/dev/stderr"}},
		{[]string{"op", "run", "op://home/etc"}, []string{"/op"}, []string{"/run", "/home", "/etc"}},
	} {
		var got []string
		for _, h := range commandFiles(tt.argv) {
			got = append(got, h.path)
			if h.tree != slices.ContainsFunc(tt.argv, func(arg string) bool {
				return strings.Contains(arg, "/") && filepath.Join("/", arg) == h.path
			}) {
				t.Errorf("%q: %s with its tree: %v", tt.argv, h.path, h.tree)
			}
		}
		for _, path := range tt.want {
			if !slices.Contains(got, path) {
				t.Errorf("%q: %s is not among %q", tt.argv, path, got)
			}
		}
		for _, path := range tt.not {
			if slices.Contains(got, path) {
				t.Errorf("%q: %s is among %q", tt.argv, path, got)
			}
		}
	}
}
