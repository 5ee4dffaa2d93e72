//go:build linux

package capture

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of mountinfo(5).
type mount struct {
	device string  // major:minor
	root   string  // of the mount within its file system
	point  string  // where it is mounted
	flags  uintptr // MS_ flags that a remount has to keep
}

func readMounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(b)), nil
}

// parseMounts reads mountinfo, leaving out lines that are none.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		// ID parent major:minor root point options …
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		m := mount{device: fields[2], root: unescapeMount(fields[3]), point: unescapeMount(fields[4])}
		if !filepath.IsAbs(m.point) {
			continue
		}
		for option := range strings.SplitSeq(fields[5], ",") {
			m.flags |= mountFlag(option)
		}
		mounts = append(mounts, m)
	}
	return mounts
}

func mountFlag(option string) uintptr {
	switch option {
	case "ro":
		return unix.MS_RDONLY
	case "nosuid":
		return unix.MS_NOSUID
	case "nodev":
		return unix.MS_NODEV
	case "noexec":
		return unix.MS_NOEXEC
	case "noatime":
		return unix.MS_NOATIME
	case "nodiratime":
		return unix.MS_NODIRATIME
	case "relatime":
		return unix.MS_RELATIME
	}
	return 0
}

// unescapeMount undoes the octal escapes of space, tab, newline, backslash and
// the like, as the kernel writes them.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

// aliases lists the other paths at which the file at path may be found: the
// same part of its file system mounted elsewhere.
func aliases(mounts []mount, path string) []string {
	var home mount
	for _, m := range mounts { // the last of the longest is on top
		if within(path, m.point) && len(m.point) >= len(home.point) {
			home = m
		}
	}
	if home.point == "" {
		return nil
	}
	inside := filepath.Join(home.root, strings.TrimPrefix(path, home.point))
	var found []string
	for _, m := range mounts {
		if m.device != home.device || !within(inside, m.root) {
			continue
		}
		other := filepath.Join(m.point, strings.TrimPrefix(inside, m.root))
		if other != path {
			found = append(found, other)
		}
	}
	return found
}
