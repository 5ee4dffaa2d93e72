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

// lookEvery is how often the files are looked at without a notice: none comes
// when a folder above them, or a link on the way to them, is exchanged.
const lookEvery = 2 * time.Second

// lookShare is how much longer the pause between two looks is than a look.
const lookShare = 100

// watch reloads the policy when its files change or SIGHUP comes, until ctx
// ends. then, if given, runs after each reload.
func (st *stack) watch(ctx context.Context, then func()) error {
	notices, err := fsnotify.NewWatcher()
	if err != nil { // the looks remain
		st.settings.log.Warn("policy files are only looked at every few seconds", "error", err)
		notices = &fsnotify.Watcher{}
	} else {
		defer notices.Close()
		st.watchFolders(notices)
	}
	hup := make(chan os.Signal, 1)
	if then != nil { // run passes SIGHUP to its command
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
	}
	var settled <-chan time.Time
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-notices.Events:
			// What else is written beside them, and who may read them, must not put it off.
			if settled == nil || e.Op != fsnotify.Chmod && filepath.Ext(e.Name) == ".hcl" {
				settled = time.After(settle)
			}
			continue
		case err := <-notices.Errors:
			st.settings.log.Warn("watching policy files", "error", err)
			settled = time.After(settle) // something may have been missed
			continue
		case <-look.C:
			begun := time.Now()
			if settled == nil && st.changed() {
				settled = time.After(settle)
			}
			look.Reset(max(lookEvery, lookShare*time.Since(begun)))
			continue
		case <-settled:
			settled = nil
			if !st.changed() {
				continue
			}
		case <-hup:
		}
		if diags := st.reload(); diags.HasErrors() {
			st.settings.log.Error("policy was not loaded; what was in force stays", "error", firstProblem(diags))
		}
		if err == nil {
			st.watchFolders(notices)
		}
		if then != nil {
			then()
		}
	}
}

// changed says whether the files are others than at the last load.
func (st *stack) changed() bool {
	if st.brought || st.loader.frozen() {
		return false
	}
	st.reloading.Lock()
	defer st.reloading.Unlock()
	return lookAt(st.loader.paths) != st.seen
}

// watchFolders watches each policy folder, the folder of each policy file,
// and where those are links, what they lead to, so that a change is seen at
// once. It watches folders, because editors replace files.
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
				st.settings.log.Debug("no notices of a policy folder; it is looked at", "folder", d, "error", err)
			}
		}
	}
}
