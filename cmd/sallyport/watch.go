package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"sallyport/policy/policyfile"
)

// settle is how long files are left alone after a change before they are
// read: editors write, rename and remove in several steps.
const settle = 200 * time.Millisecond

// watch reloads the policy when its files change or SIGHUP comes, until ctx
// ends. It watches folders, because editors replace files. then, if given,
// runs after each reload.
func (st *stack) watch(ctx context.Context, then func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	st.watchFolders(w)
	hup := make(chan os.Signal, 1)
	if then != nil { // run passes SIGHUP to its command
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
	}
	var timer <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if e.Op != fsnotify.Chmod && st.concerns(e.Name) {
				timer = time.After(settle)
			}
			continue
		case err := <-w.Errors:
			st.settings.log.Warn("watching policy files", "error", err)
			timer = time.After(settle) // something may have been missed
			continue
		case <-timer:
			timer = nil
		case <-hup:
		}
		if diags := st.reload(); diags.HasErrors() {
			st.settings.log.Error("policy was not loaded; what was in force stays", "error", firstProblem(diags))
		}
		st.watchFolders(w)
		if then != nil {
			then()
		}
	}
}

// watchFolders watches each policy folder, the folder of each policy file,
// and where those are links, what they lead to.
func (st *stack) watchFolders(w *fsnotify.Watcher) {
	if st.brought {
		return
	}
	for _, p := range st.loader.paths {
		if p == policyfile.Stdin {
			continue // it does not change
		}
		dirs := []string{filepath.Dir(p)}
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			dirs = append(dirs, p)
		}
		if real, err := filepath.EvalSymlinks(p); err == nil && real != p {
			dirs = append(dirs, filepath.Dir(real))
		}
		for _, d := range dirs {
			if err := w.Add(d); err != nil {
				st.settings.log.Warn("policy folder is not watched; send SIGHUP to reload", "folder", d, "error", err)
			}
		}
	}
}

// concerns says whether a change at name can change the policy.
func (st *stack) concerns(name string) bool {
	for _, p := range st.loader.paths {
		if name == p || filepath.Base(name) == "..data" {
			return true
		}
		if real, err := filepath.EvalSymlinks(p); err == nil && name == real {
			return true
		}
		if filepath.Dir(name) == filepath.Clean(p) && filepath.Ext(name) == ".hcl" {
			return true
		}
	}
	return false
}
