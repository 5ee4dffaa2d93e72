package audit

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// record is an event with the log and the place that it was read from.
type record struct {
	event *Event
	err   error
	time  time.Time // by which several logs are merged
}

// Read returns what is written now in the logs at dirs and passes f, oldest
// first. Events of one log keep its order, those of several are merged by time.
// An entry of dirs is the directory of a log, a directory of such directories,
// or a glob of either; one that is not there is empty. A line that is no record
// comes as a *LineError, and reading goes on; after any other error it ends.
func Read(ctx context.Context, dirs []string, f Filter) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		logs, err := logDirs(dirs)
		if err != nil {
			yield(nil, err)
			return
		}
		var spans []span
		for _, dir := range logs {
			s, err := spanOf(dir)
			if err != nil {
				yield(nil, err)
				return
			}
			spans = append(spans, s)
		}
		for r := range history(ctx, spans, f) {
			if !yield(r.event, r.err) {
				return
			}
		}
	}
}

// span is a stretch of one log.
type span struct {
	dir        string
	first, end place
}

// spanOf is all that is written now in dir.
func spanOf(dir string) (span, error) {
	for {
		first, end, err := ends(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // retention was faster; the list is another now
		}
		return span{dir: dir, first: first, end: end}, err
	}
}

// history yields what spans have that passes f, merged.
func history(ctx context.Context, spans []span, f Filter) iter.Seq[record] {
	var all []iter.Seq[record]
	for _, s := range spans {
		if f.Limit > 0 {
			all = append(all, newest(ctx, s, f))
		} else {
			all = append(all, forward(ctx, s, f))
		}
	}
	merged := merge(all)
	if f.Limit <= 0 || len(all) == 1 {
		return merged
	}
	return lastOf(merged, f.Limit)
}

// forward yields the matching records of one span from its beginning.
func forward(ctx context.Context, s span, f Filter) iter.Seq[record] {
	return func(yield func(record) bool) {
		if s.end.n == 0 {
			return
		}
		if index := newLookup(s.dir, f); index != nil {
			index.forward(ctx, s, newSieve(f), yield)
			return
		}
		c := newCursor(s.dir, place{n: sinceSegment(s, f.Since)})
		c.until = s.end
		defer c.close()
		sieve := newSieve(f)
		for ctx.Err() == nil {
			line, err := c.next()
			if errors.Is(err, io.EOF) {
				return
			}
			r, ok := sieve.read(line, err, c)
			if ok && !yield(r) {
				return
			}
			if err != nil && !isLineError(err) {
				return
			}
		}
		yield(record{err: ctx.Err()})
	}
}

// read makes a record of what a cursor returned, and reports whether it is one
// that the filter takes.
func (s *sieve) read(line []byte, err error, c *cursor) (record, bool) {
	if err != nil {
		return record{err: err}, true
	}
	if !s.pass(line) {
		return record{}, false
	}
	e, err := DecodeLine(line)
	if err != nil {
		lineNo := max(c.line-1, 0)
		return record{err: &LineError{File: c.path(), Line: lineNo, Offset: c.at.off - int64(len(line)) - 1, Err: err}}, true
	}
	return record{event: e, time: e.Time}, s.f.Match(e)
}

func isLineError(err error) bool {
	var bad *LineError
	return errors.As(err, &bad)
}

// sinceSegment is the first segment that may have records of since or later.
// Within a segment time runs forward, but for clockSlack.
func sinceSegment(s span, since time.Time) uint64 {
	list, err := segments(s.dir)
	if err != nil || since.IsZero() {
		return s.first.n
	}
	for _, n := range list {
		last, err := lastRecordOf(openToRead, filepath.Join(s.dir, segmentName(n)))
		if err != nil || !last.found || !last.head.time.Before(since) {
			return n
		}
	}
	return s.end.n
}

// openToRead is an opener for readers, who need not own the log.
func openToRead(path string, flags int) (file, error) {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	return segmentFile{f, int(f.Fd())}, nil
}

// merge yields the records of all by time; each of them stays in its order. A
// record that has no time comes as soon as it is reached.
func merge(all []iter.Seq[record]) iter.Seq[record] {
	if len(all) == 1 {
		return all[0]
	}
	return func(yield func(record) bool) {
		type source struct {
			next func() (record, bool)
			stop func()
			head record
		}
		var sources []*source
		defer func() {
			for _, s := range sources {
				s.stop()
			}
		}()
		for _, seq := range all {
			next, stop := iter.Pull(seq)
			s := &source{next: next, stop: stop}
			sources = append(sources, s)
		}
		live := slices.Clone(sources)
		live = slices.DeleteFunc(live, func(s *source) bool {
			var ok bool
			s.head, ok = s.next()
			return !ok
		})
		for len(live) > 0 {
			i := 0
			for j := range live {
				if live[j].head.time.Before(live[i].head.time) {
					i = j
				}
			}
			if !yield(live[i].head) {
				return
			}
			var ok bool
			if live[i].head, ok = live[i].next(); !ok {
				live = slices.Delete(live, i, i+1)
			}
		}
	}
}

// lastOf yields the last n records of seq.
func lastOf(seq iter.Seq[record], n int) iter.Seq[record] {
	return func(yield func(record) bool) {
		var kept []record
		for r := range seq {
			kept = append(kept, r)
			if len(kept) > 2*n {
				kept = append(kept[:0], kept[len(kept)-n:]...)
			}
		}
		for _, r := range kept[max(len(kept)-n, 0):] {
			if !yield(r) {
				return
			}
		}
	}
}

// logDirs expands the entries of dirs to the directories that hold segments or
// may come to.
func logDirs(dirs []string) ([]string, error) {
	var logs []string
	for _, entry := range dirs {
		found := []string{entry}
		if strings.ContainsAny(entry, "*?[") {
			var err error
			if found, err = filepath.Glob(entry); err != nil {
				return nil, err
			}
		}
		for _, dir := range found {
			logs = append(logs, logsIn(dir)...)
		}
	}
	slices.Sort(logs)
	return slices.Compact(logs), nil
}

// logsIn returns dir if it has segments, and otherwise those directories in it
// that have. It looks at most three levels down.
func logsIn(dir string) []string {
	return logsBelow(filepath.Clean(dir), 3)
}

func logsBelow(dir string, depth int) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var below []string
	for _, e := range entries {
		if _, ok := segmentNumber(e.Name()); ok && !e.IsDir() {
			return []string{dir}
		}
		if e.IsDir() && depth > 0 {
			below = append(below, filepath.Join(dir, e.Name()))
		}
	}
	var logs []string
	for _, d := range below {
		logs = append(logs, logsBelow(d, depth-1)...)
	}
	return logs
}
