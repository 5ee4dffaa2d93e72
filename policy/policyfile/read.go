package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sallyport/policy"
)

// MaxBytes is the size that the files of one policy may have together. A
// larger file is refused by its size, before it is read.
const MaxBytes = 64 << 20

// hintInit is what to do about a policy that is not there.
const hintInit = "to write a starter policy: sallyport init"

// source is one file of a policy.
type source struct {
	name string // as it is shown: the path given, or below it
	base string // as it is hashed: independent of where the policy lies
	data []byte
	test bool // holds tests alone and is no part of the policy
}

// text is the file without a byte order mark.
func (s source) text() []byte { return bytes.TrimPrefix(s.data, []byte("\xef\xbb\xbf")) }

// reader reads the files of a policy once each.
type reader struct {
	diags   *Diagnostics
	sources []source
	seen    []fs.FileInfo
	tests   bool // what is read are test files
	stdin   []byte
	left    int64 // bytes that may still be read; 0 after a file that is too large
}

// read reads the files that paths lead to.
func read(paths []string, stdin []byte, diags *Diagnostics) []source {
	r := &reader{diags: diags, left: MaxBytes, stdin: stdin}
	if len(paths) == 0 {
		diags.add(Diagnostic{Summary: "no policy is given", Hint: "name one with --policy PATH; " + hintInit})
	}
	for _, p := range paths {
		r.path(p)
	}
	return r.sources
}

// fail reports a problem of a file as a whole.
func (r *reader) fail(path, summary, hint string) {
	r.diags.add(Diagnostic{Summary: summary, Hint: hint, Pos: policy.Pos{File: path}})
}

// path reads one path that was given.
func (r *reader) path(path string) {
	if path == Stdin {
		r.standardInput()
		return
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.fail(path, "policy does not exist", hintInit+" "+path)
	case err != nil:
		r.fail(path, "policy cannot be read: "+cause(err), "check who may read it, and every directory above it")
	case info.IsDir():
		r.dir(path)
	case strings.HasSuffix(path, "_test.hcl"):
		r.fail(path, "file holds tests and no policy", "name the policy that it tests, or the directory of both")
	default:
		r.file(path, filepath.Base(path))
	}
}

// Stdin is the path that stands for standard input.
const Stdin = "-"

// stdinName is how the file of standard input is called.
const stdinName = "stdin.hcl"

// standardInput takes what was read from standard input for a file.
func (r *reader) standardInput() {
	switch {
	case len(r.stdin) == 0:
		r.fail(stdinName, "standard input is empty, or is read once already", "pipe a policy into it, or name a file instead of -")
	case int64(len(r.stdin)) > r.left:
		r.tooLarge(stdinName)
	default:
		r.left -= int64(len(r.stdin))
		r.sources = append(r.sources, source{stdinName, stdinName, r.stdin, false})
		r.stdin = nil
	}
}

// dir reads the policy files of a directory.
func (r *reader) dir(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		r.fail(path, "directory cannot be read: "+cause(err), "check who may read it")
		return
	}
	found := false
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, "_test.hcl") || name[0] == '.' {
			continue
		}
		found = true
		r.file(filepath.Join(path, name), name)
	}
	if !found {
		r.fail(path, "directory has no policy files", "policy files are called *.hcl; "+hintInit+" "+filepath.Join(path, "policy.hcl"))
	}
}

// file reads one file. It is opened without blocking, so that a named pipe
// cannot hold the load up, and must then prove to be a regular one.
func (r *reader) file(path, base string) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		r.fail(path, "file cannot be read: "+cause(err), "check that it is there and who may read it")
		return
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		r.fail(path, "file cannot be read: "+cause(err), "")
		return
	case !info.Mode().IsRegular():
		r.fail(path, "not a regular file but "+kind(info.Mode()), "a policy is a file or a directory of files")
		return
	case info.Size() > r.left:
		r.tooLarge(path)
		return
	}
	for _, s := range r.seen {
		if os.SameFile(s, info) {
			return
		}
	}
	r.seen = append(r.seen, info)
	data, err := io.ReadAll(io.LimitReader(f, r.left+1))
	switch {
	case err != nil:
		r.fail(path, "file cannot be read: "+cause(err), "")
		return
	case int64(len(data)) > r.left:
		r.tooLarge(path)
		return
	}
	r.left -= int64(len(data))
	r.sources = append(r.sources, source{path, base, data, r.tests})
}

// tooLarge reports a policy that is too large. None of it is decoded.
func (r *reader) tooLarge(path string) {
	r.sources, r.left = nil, 0
	r.fail(path, fmt.Sprintf("policy is larger than %d MiB", MaxBytes>>20), "is this the right file?")
}

// cause returns an error of the file system without the path, which the
// diagnostic has already.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// kind says what a file is that is not a regular one.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
