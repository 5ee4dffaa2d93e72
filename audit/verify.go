package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// Report is what Verify found.
type Report struct {
	Dir       string    `json:"dir"`
	Segments  int       `json:"segments"`
	Records   uint64    `json:"records"`
	Bytes     int64     `json:"bytes"`
	FirstSeq  uint64    `json:"first_seq"`
	LastSeq   uint64    `json:"last_seq"`
	FirstTime time.Time `json:"first_time"`
	LastTime  time.Time `json:"last_time"`
	Head      string    `json:"head"`           // hex SHA-256 of the last line: keep it elsewhere to prove more than the files can
	Anchored  bool      `json:"anchored"`       // retention has removed the beginning, and an anchor says so
	Torn      int64     `json:"torn,omitempty"` // bytes of an unfinished last line, as a running log or a crash leaves it
	Broken    *Break    `json:"broken,omitempty"`
}

// Break is the first record at which the chain does not hold.
type Break struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // from 1; 0 when it is the file as a whole
	Seq    uint64 `json:"seq,omitempty"`
	Reason string `json:"reason"`
}

// Error makes a Break the error of Verify.
func (b *Break) Error() string {
	if b.Line == 0 {
		return fmt.Sprintf("%s: %s", b.File, b.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Reason)
}

// Verify checks the chain of the log in dir, across all its segments: every
// record carries the hash of the one before and the next number, and the log
// begins with record 1 or where an anchor in it says that it now begins. A log
// may be verified while it is written. If the chain is broken the error is the
// *Break that the report has; any other error means that it could not be read.
func Verify(dir string) (Report, error) {
	files, list, err := openAll(dir)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	rep := Report{Dir: dir, Segments: len(list)}
	if err != nil {
		return rep, fmt.Errorf("audit log %s: %w", dir, err)
	}
	if len(list) == 0 {
		return rep, fmt.Errorf("audit log %s: no segments", dir)
	}
	checks := checkAll(dir, files, list)
	for _, c := range checks {
		if c.err != nil {
			return rep, fmt.Errorf("audit log %s: %w", dir, c.err)
		}
	}
	rep.join(checks)
	if rep.Broken != nil {
		return rep, rep.Broken
	}
	return rep, nil
}

// openAll opens every segment of dir, so that retention cannot take one away
// meanwhile.
func openAll(dir string) ([]*os.File, []uint64, error) {
	for {
		list, err := segments(dir)
		if err != nil {
			return nil, nil, err
		}
		var files []*os.File
		for _, n := range list {
			f, e := os.Open(filepath.Join(dir, segmentName(n)))
			if err = e; err != nil {
				break
			}
			files = append(files, f)
		}
		if errors.Is(err, fs.ErrNotExist) {
			for _, f := range files {
				f.Close()
			}
			continue
		}
		return files, list, err
	}
}

// checkAll checks each segment by itself, as many at a time as there are
// processors.
func checkAll(dir string, files []*os.File, list []uint64) []*segmentCheck {
	checks := make([]*segmentCheck, len(list))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, n := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c := &segmentCheck{path: filepath.Join(dir, segmentName(n)), n: n}
			c.run(files[i])
			checks[i] = c
		})
	}
	wg.Wait()
	return checks
}

// join follows the chain from segment to segment.
func (r *Report) join(checks []*segmentCheck) {
	notes := collectNotes(checks)
	var before *segmentCheck // the last one that had a record
	for i, c := range checks {
		r.Bytes += c.bytes
		r.Records += c.records
		lastOne := i == len(checks)-1
		if c.records > 0 {
			r.link(before, c, notes)
			if before == nil {
				r.FirstSeq, r.FirstTime = c.first.seq, c.first.time
			}
			before = c
			r.LastSeq, r.LastTime, r.Head = c.last.seq, c.last.time, hex.EncodeToString(c.lastHash[:])
		}
		r.broken(c.broken)
		if c.torn > 0 && lastOne {
			r.Torn = c.torn
		} else if c.torn > 0 && !notes.torn[segmentName(c.n)] {
			r.broken(&Break{File: c.path, Line: c.lines + 1, Reason: "the segment ends in half a line"})
		}
	}
}

// broken keeps the first break.
func (r *Report) broken(b *Break) {
	if r.Broken == nil && b != nil {
		r.Broken = b
	}
}

// link checks that c begins where before ends.
func (r *Report) link(before, c *segmentCheck, notes notes) {
	if before == nil {
		if c.first.seq == 1 && c.first.prev == [32]byte{} {
			return
		}
		if notes.anchors[anchor{c.first.seq, c.first.prev}] {
			r.Anchored = true
			return
		}
		r.broken(&Break{File: c.path, Line: 1, Seq: c.first.seq, Reason: fmt.Sprintf("the log begins with record %d, and no anchor says so", c.first.seq)})
		return
	}
	if r.Broken != nil {
		return
	}
	switch {
	case c.first.seq != before.last.seq+1 && c.n != before.n+1:
		r.broken(&Break{File: c.path, Line: 1, Seq: c.first.seq, Reason: fmt.Sprintf("record %d follows record %d: %s to %s are missing",
			c.first.seq, before.last.seq, segmentName(before.n+1), segmentName(c.n-1))})
	case c.first.seq != before.last.seq+1:
		r.broken(&Break{File: c.path, Line: 1, Seq: c.first.seq, Reason: wrongSeq(c.first.seq, before.last.seq)})
	case c.first.prev != before.lastHash && c.firstIntact:
		r.broken(&Break{File: before.path, Line: before.lines, Seq: before.last.seq, Reason: altered})
	case c.first.prev != before.lastHash:
		r.broken(&Break{File: c.path, Line: 1, Seq: c.first.seq, Reason: unlinked})
	}
}

const (
	altered  = "the record is not the one that the next record was chained to"
	unlinked = "the record's prev is not the hash of the record before"
)

func wrongSeq(got, before uint64) string {
	if got > before+1 {
		return fmt.Sprintf("record %d follows record %d: %d records are missing", got, before, got-before-1)
	}
	return fmt.Sprintf("record %d follows record %d", got, before)
}

// anchor is the place in the chain at which a log may begin.
type anchor struct {
	seq  uint64
	prev [32]byte
}

// notes are what events of kind audit explain.
type notes struct {
	anchors map[anchor]bool
	torn    map[string]bool // segments left with half a line at their end
}

func collectNotes(checks []*segmentCheck) notes {
	all := notes{anchors: make(map[anchor]bool), torn: make(map[string]bool)}
	for _, c := range checks {
		for _, n := range c.notes {
			switch n.Action {
			case ActionAnchor:
				a := anchor{seq: n.Seq}
				if k, err := hex.Decode(a.prev[:], []byte(n.Hash[:min(len(n.Hash), 64)])); err == nil && k == 32 {
					all.anchors[a] = true
				}
			case ActionTorn:
				all.torn[n.Segment] = true
			}
		}
	}
	return all
}
