package age

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxLinks is how many links to a file are followed one after another.
const maxLinks = 40

// target returns the file that path stands for, through links. It need not be
// there.
func target(path string) (string, error) {
	for range maxLinks {
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link, or nothing at all
		}
		if !filepath.IsAbs(to) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", errors.New("is a link in a ring of links")
}

// replace writes a file beside the one that path stands for, with its owner and
// mode, makes it durable and renames it over that.
func replace(path string, b []byte) (err error) {
	if path, err = target(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	err = like(f, path)
	if err == nil {
		_, err = f.Write(b)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// like gives f the owner and the mode of the file that it is to replace, if
// that is there.
func like(f *os.File, path string) error {
	was, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	is, err := f.Stat()
	if err != nil {
		return err
	}
	of, own := was.Sys().(*syscall.Stat_t), is.Sys().(*syscall.Stat_t)
	if of.Uid != own.Uid || of.Gid != own.Gid {
		if err := f.Chown(int(of.Uid), int(of.Gid)); err != nil {
			return cannotHave(of, own)
		}
	}
	return f.Chmod(was.Mode().Perm())
}

// cannotHave is why a file that is owned like own cannot be owned like of, and
// what to do. An owner is not told to be the owner: it is the group then.
func cannotHave(of, own *syscall.Stat_t) error {
	if of.Uid == own.Uid {
		return fmt.Errorf("has group %d, which is none of yours and which the new file cannot have: give the file a group of yours with chgrp, or run this as root", of.Gid)
	}
	return fmt.Errorf("belongs to user %d and group %d, which the new file cannot: run this as that user or as root", of.Uid, of.Gid)
}
