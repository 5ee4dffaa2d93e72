package main

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sallyport/policy/policyfile"
)

// filesSeen tells one state of the files of a policy from another: which there
// are, and which file each is, of what size, of when and with what in it, or why
// it cannot be read. What is read through links and folders is what is looked
// at, so that it does not matter which part of a path was exchanged.
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

// noteFile adds what a path leads to. Size and times do not say what a file
// holds: whoever writes it sets them, and a file system may keep them for
// seconds. So what it holds is added as well, as far as a load would read it.
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
	if info.Mode().IsRegular() && info.Size() <= policyfile.MaxBytes {
		if err := noteContent(h, path); err != nil {
			fmt.Fprintf(h, "%q\n", err.Error())
		}
	}
}

// noteContent adds what a regular file holds. Like a load it does not wait for
// what has become a pipe meanwhile.
func noteContent(h hash.Hash, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	content := sha256.New() // of its own, so that no file can pass for the next one's line
	if _, err := io.Copy(content, io.LimitReader(f, policyfile.MaxBytes)); err != nil {
		return err
	}
	_, err = h.Write(content.Sum(nil))
	return err
}
