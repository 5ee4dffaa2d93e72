package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"sallyport/policy"
)

// learnedFile is where --out leads, as it was before the command ran. The
// command can change everything there, so nothing is written before it has
// ended, and then into the folder that was found and to no name that it knows.
type learnedFile struct {
	path string   // as it was asked for
	dir  *os.Root // that holds the file itself, at the end of all links
	base string
	was  fs.FileInfo // nil: there was none
	mark mark
}

// openOut finds the place of the file that was named, and that one can be made
// there: after the command it would be too late to say that it cannot. It
// returns nil for standard output.
func (f *learnFlags) openOut() (*learnedFile, error) {
	if f.out == "" || f.out == dash {
		return nil, nil
	}
	fail := func(err error) (*learnedFile, error) {
		return nil, &exit{code: exitUsage, err: fmt.Errorf("--out %s: %w", f.out, err), hint: "name a file in a folder that you may write to"}
	}
	o := &learnedFile{path: f.out, base: filepath.Base(f.out), mark: markOf(f.out)}
	dir := filepath.Dir(f.out)
	info, err := os.Stat(f.out)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, &exit{code: exitUsage, err: fmt.Errorf("--out %s: not a regular file", f.out)}
	case err == nil:
		real, err := filepath.EvalSymlinks(f.out)
		if err != nil {
			return fail(err)
		}
		o.was, o.base, dir = info, filepath.Base(real), filepath.Dir(real)
	case !errors.Is(err, fs.ErrNotExist):
		return fail(err)
	default:
		if _, err := os.Lstat(f.out); err == nil {
			return fail(errors.New("is a link to nothing"))
		}
	}
	if o.dir, err = os.OpenRoot(dir); err != nil {
		return fail(err)
	}
	tried, err := o.beside()
	if err == nil {
		err = errors.Join(tried.Close(), o.dir.Remove(filepath.Base(tried.Name())))
	}
	if err != nil {
		o.close()
		return fail(err)
	}
	return o, nil
}

// beside makes a file beside the one that it is to replace.
func (o *learnedFile) beside() (*os.File, error) {
	return o.dir.OpenFile(".learned-"+rand.Text()+".hcl", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// close is to be called when nothing more is written.
func (o *learnedFile) close() {
	if o != nil {
		_ = o.dir.Close() // nothing was written through it
	}
}

// replace puts text in the place of the file, with the mode and, as far as the
// caller may give it, the owner that the file had. The command has ended. Its
// path may lead elsewhere by now, to what is not text; this is an error.
func (o *learnedFile) replace(text []byte) error {
	out, err := o.beside()
	if err != nil {
		return err
	}
	temp := filepath.Base(out.Name())
	defer o.dir.Remove(temp) // it is gone when it has taken its place
	mode := fs.FileMode(0o644)
	if o.was != nil {
		mode = o.was.Mode().Perm()
		if st, ok := o.was.Sys().(*syscall.Stat_t); ok {
			_ = out.Chown(int(st.Uid), int(st.Gid)) // most callers may not
		}
	}
	_, err = out.Write(text)
	err = errors.Join(err, out.Chmod(mode), out.Sync())
	made, serr := out.Stat()
	if err = errors.Join(err, serr, out.Close()); err != nil {
		return err
	}
	if err := o.dir.Rename(temp, o.base); err != nil {
		return err
	}
	if found, err := os.Stat(o.path); err != nil || !os.SameFile(found, made) {
		return fmt.Errorf("it leads elsewhere than before the command ran; what is there was not written by sallyport, but %s in the folder of before", o.base)
	}
	return nil
}

// write prints what was needed, or puts it in the place of the file that was
// named.
func (f *learnFlags) write(doc policy.Document, list []policy.Blocked, out *learnedFile) error {
	if out == nil {
		return f.print(os.Stdout, doc, list)
	}
	var b bytes.Buffer
	if err := f.print(&b, doc, list); err != nil {
		return err
	}
	if b.Len() == 0 {
		if markOf(f.out) != out.mark {
			return fmt.Errorf("--out %s: it was written while the command ran, and not by sallyport: nothing was learned", f.out)
		}
		fmt.Fprintf(os.Stderr, "sallyport: there is nothing to write; %s is as it was\n", f.out)
		return nil
	}
	if err := out.replace(b.Bytes()); err != nil {
		return fmt.Errorf("--out %s: %w", f.out, err)
	}
	fmt.Fprintf(os.Stderr, "sallyport: what the command needed is in %s; read it before you use it\n", f.out)
	return nil
}
