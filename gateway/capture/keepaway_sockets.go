//go:build linux

package capture

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// unixSocket is one bound socket of /proc/net/unix.
type unixSocket struct {
	inode uint64
	name  string // as bound: absolute, relative, or beginning with "@" if abstract
}

// parseUnixSockets reads the format of /proc/net/unix. Names are whatever their
// owners chose: one with a newline is cut there.
func parseUnixSockets(text string) []unixSocket {
	var sockets []unixSocket
	for line := range strings.Lines(text) {
		// Num RefCount Protocol Flags Type St Inode Path; the inode is padded.
		rest := strings.TrimSuffix(line, "\n")
		var inode uint64
		ok := true
		for i := 0; i < 7 && ok; i++ {
			var field string
			field, rest, ok = strings.Cut(strings.TrimLeft(rest, " "), " ")
			if i == 6 {
				var err error
				inode, err = strconv.ParseUint(field, 10, 64)
				ok = ok && err == nil
			}
		}
		if ok && rest != "" {
			sockets = append(sockets, unixSocket{inode: inode, name: rest})
		}
	}
	return sockets
}

// socketPaths lists the unix sockets that have a name in the file system, of
// every network namespace this user can look into. A socket can be connected to
// from any network namespace; its name is all that counts. One that only sends,
// or is connected, may bear its listener's name, so all are taken.
func socketPaths() []string {
	var paths []string
	relative := make(map[uint64]string)
	for _, table := range socketTables() {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // the process is gone
		}
		for _, s := range parseUnixSockets(string(text)) {
			switch {
			case s.name[0] == '/':
				paths = append(paths, s.name)
			case s.name[0] != '@':
				relative[s.inode] = s.name
			}
		}
	}
	if len(relative) > 0 {
		paths = append(paths, absolutePaths(relative)...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// socketTables is one /proc/PID/net/unix of each network namespace.
func socketTables() []string {
	tables := []string{"/proc/self/net/unix"}
	seen := make(map[string]bool)
	if own, err := os.Readlink("/proc/self/ns/net"); err == nil {
		seen[own] = true
	}
	for _, dir := range processes() {
		namespace, err := os.Readlink(dir + "/ns/net")
		if err != nil || seen[namespace] {
			continue
		}
		seen[namespace] = true
		tables = append(tables, dir+"/net/unix")
	}
	return tables
}

func processes() []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var dirs []string
	for _, e := range entries {
		if name := e.Name(); name[0] >= '1' && name[0] <= '9' {
			dirs = append(dirs, "/proc/"+name)
		}
	}
	return dirs
}

// absolutePaths finds where sockets with relative names are: in the working
// directory of a process that holds them.
func absolutePaths(names map[uint64]string) []string {
	var paths []string
	for _, dir := range processes() {
		descriptors, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue // another user's, or gone
		}
		for _, d := range descriptors {
			target, err := os.Readlink(dir + "/fd/" + d.Name())
			if err != nil {
				continue
			}
			number, ok := strings.CutPrefix(target, "socket:[")
			if !ok {
				continue
			}
			inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
			if err != nil || names[inode] == "" {
				continue
			}
			if cwd, err := os.Readlink(dir + "/cwd"); err == nil {
				paths = append(paths, filepath.Join(cwd, names[inode]))
			}
		}
	}
	return paths
}
