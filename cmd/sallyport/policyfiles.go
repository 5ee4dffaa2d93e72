package main

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sallyport/policy/policyfile"
)

// filesSeen tells one state of the files of a policy from another: which there
// are, and which file each is, of what size and of when. What is read through
// links and folders is what is looked at, so that it does not matter which part
// of a path was exchanged.
type filesSeen [sha256.Size]byte

// lookAt looks at the files below paths as a load would read them.
func lookAt(paths []string) (seen filesSeen) {
	h := sha256.New()
	for _, p := range paths {
		if p == policyfile.Stdin {
			continue // it does not change
		}
		noteFile(h, p)
		entries, err := os.ReadDir(p)
		if err != nil {
			continue // a file, or it was noted that it cannot be had
		}
		for _, e := range entries {
			if name := e.Name(); filepath.Ext(name) == ".hcl" && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "_test.hcl") {
				noteFile(h, filepath.Join(p, name))
			}
		}
	}
	return filesSeen(h.Sum(nil))
}

// noteFile adds what a path leads to.
func noteFile(h hash.Hash, path string) {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintf(h, "%q %q\n", path, err.Error())
		return
	}
	if info.IsDir() {
		fmt.Fprintf(h, "%q folder\n", path)
		return
	}
	inode := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = s.Ino
	}
	fmt.Fprintf(h, "%q %d %d %d\n", path, inode, info.Size(), info.ModTime().UnixNano())
}
