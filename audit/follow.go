package audit

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// followPoll is how often a follower looks by itself: for file systems without
// notification, and for logs that appear.
const followPoll = 250 * time.Millisecond

// Follow is Read and then what is written from there on, until ctx ends: each
// event once, also those written in between. It works from the files alone.
// With a Limit it begins with the last events of that number, with a negative
// one with none. What is written after the call of Follow is what comes. Logs and
// segments that appear are followed from their beginning. The sequence is for one
// use.
func Follow(ctx context.Context, dirs []string, f Filter) iter.Seq2[*Event, error] {
	w := &follower{dirs: dirs, sieve: newSieve(f), cursors: make(map[string]*cursor)}
	spans, err := w.begin()
	return func(yield func(*Event, error) bool) {
		w.yield = yield
		defer w.close()
		if err != nil {
			yield(nil, err)
			return
		}
		w.watch()
		if f.Limit >= 0 {
			for r := range history(ctx, spans, f) {
				if ctx.Err() != nil || !yield(r.event, r.err) {
					return
				}
			}
		}
		w.live(ctx)
	}
}

// follower is the state of one Follow.
type follower struct {
	dirs    []string
	sieve   *sieve
	cursors map[string]*cursor // by directory
	yield   func(*Event, error) bool
	notify  *fsnotify.Watcher // nil where there is none
}

// begin puts a cursor at the seam of each log that is there and returns what
// lies before.
func (w *follower) begin() ([]span, error) {
	logs, err := logDirs(w.dirs)
	if err != nil {
		return nil, err
	}
	var spans []span
	for _, dir := range logs {
		s, err := spanOf(dir)
		if err != nil {
			return nil, err
		}
		spans = append(spans, s)
		w.cursors[dir] = newCursor(dir, s.end)
	}
	return spans, nil
}

// live yields what comes after the seam.
func (w *follower) live(ctx context.Context) {
	poll := time.NewTicker(followPoll)
	defer poll.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	for {
		for _, c := range w.cursors {
			if !w.drain(ctx, c) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			if ev.Has(fsnotify.Create) && !strings.HasSuffix(ev.Name, segmentSuffix) {
				w.discover()
			}
		case <-errs: // an overflow: everything is looked at anyway
		case <-poll.C:
			w.discover()
		}
	}
}

// drain yields the lines that c has, and reports whether to go on.
func (w *follower) drain(ctx context.Context, c *cursor) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		line, err := c.next()
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrNotExist) {
			return true
		}
		r, ok := w.sieve.read(line, err, c)
		if ok && !w.yield(r.event, r.err) {
			return false
		}
		if err != nil && !isLineError(err) {
			return true // the disk may recover; the poll tries again
		}
	}
}

// discover finds logs that have appeared.
func (w *follower) discover() {
	w.watch()
	logs, err := logDirs(w.dirs)
	if err != nil {
		return
	}
	for _, dir := range logs {
		if w.cursors[dir] == nil {
			w.cursors[dir] = newCursor(dir, place{})
		}
	}
}

// watch asks to be told of changes in the logs and in where they may appear.
// Asking twice is no matter.
func (w *follower) watch() {
	if w.notify == nil {
		n, err := fsnotify.NewWatcher()
		if err != nil {
			return // the poll does it
		}
		w.notify = n
	}
	logs, _ := logDirs(w.dirs)
	for _, dir := range logs {
		_ = w.notify.Add(dir)
	}
	for _, dir := range w.dirs {
		for strings.ContainsAny(dir, "*?[") {
			dir = filepath.Dir(dir)
		}
		_ = w.notify.Add(dir)
	}
}

func (w *follower) close() {
	for _, c := range w.cursors {
		c.close()
	}
	if w.notify != nil {
		w.notify.Close()
	}
}

// wake is where changes are announced; nil where nothing is.
func (w *follower) wake() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}
