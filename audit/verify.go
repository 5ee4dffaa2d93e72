package audit

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

	Checkpoints int      `json:"checkpoints"`
	SignedSeq   uint64   `json:"signed_seq"`     // the last record that a checkpoint signs, and with it all before
	Keys        []string `json:"keys,omitempty"` // hex public keys that sign
}

// VerifyOptions is what a verifier knows from elsewhere.
type VerifyOptions struct {
	// Key is the public key of the checkpoints. With it every checkpoint must be
	// signed by it, there must be one, and an anchor counts only if it is signed.
	Key ed25519.PublicKey
	// Expect are hashes of lines, hex SHA-256, by seq: heads of reports and
	// checkpoints that were kept elsewhere. A log that has another record there,
	// or none although it goes further back, is not the same log.
	Expect map[uint64]string
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
func Verify(dir string) (Report, error) { return VerifyWith(dir, VerifyOptions{}) }

// VerifyWith is Verify that also proves the log against what the verifier
// knows, so that even who may write the disk and knows the format cannot have
// replaced it.
func VerifyWith(dir string, o VerifyOptions) (Report, error) {
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
	checks := checkAll(dir, files, list, o)
	for _, c := range checks {
		if c.err != nil {
			return rep, fmt.Errorf("audit log %s: %w", dir, c.err)
		}
	}
	rep.signatures(checks)
	rep.join(checks, o)
	rep.expected(checks, o)
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
func checkAll(dir string, files []*os.File, list []uint64, o VerifyOptions) []*segmentCheck {
	checks := make([]*segmentCheck, len(list))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, n := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c := &segmentCheck{path: filepath.Join(dir, segmentName(n)), n: n, o: o}
			c.run(files[i])
			checks[i] = c
		})
	}
	wg.Wait()
	return checks
}

// join follows the chain from segment to segment.
func (r *Report) join(checks []*segmentCheck, o VerifyOptions) {
	notes := collectNotes(checks)
	if o.Key != nil { // who may write the disk can append an anchor, but not sign it
		notes.signed, notes.upto = true, r.SignedSeq
	}
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

// signatures sums up the checkpoints.
func (r *Report) signatures(checks []*segmentCheck) {
	for _, c := range checks {
		r.Checkpoints += c.checkpoints
		r.SignedSeq = max(r.SignedSeq, c.signed)
		for key := range c.keys {
			if !slices.Contains(r.Keys, key) {
				r.Keys = append(r.Keys, key)
			}
		}
	}
	slices.Sort(r.Keys)
}

// expected compares what is there with what the verifier knows.
func (r *Report) expected(checks []*segmentCheck, o VerifyOptions) {
	met, want := 0, 0
	for _, c := range checks {
		met += c.met
	}
	for seq := range o.Expect {
		if seq >= r.FirstSeq { // what retention removed cannot be met
			want++
		}
	}
	last := checks[len(checks)-1]
	if met < want {
		r.broken(&Break{File: last.path, Reason: fmt.Sprintf("%d of %d expected records are not in the log", want-met, want)})
	}
	if o.Key != nil && r.Checkpoints == 0 {
		r.broken(&Break{File: last.path, Reason: "there is no checkpoint"})
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
		at, there := notes.anchors[anchor{c.first.seq, c.first.prev}]
		if there && (!notes.signed || at <= notes.upto) {
			r.Anchored = true
			return
		}
		which := "no anchor says so"
		if there {
			which = fmt.Sprintf("the anchor that says so, record %d, is not signed", at)
		}
		r.broken(&Break{File: c.path, Line: 1, Seq: c.first.seq, Reason: fmt.Sprintf("the log begins with record %d, and %s", c.first.seq, which)})
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

// several is a number of things, as in "1 record" and "2 records".
func several[N int | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func wrongSeq(got, before uint64) string {
	if got > before+1 {
		return fmt.Sprintf("record %d follows record %d: %s missing", got, before, several(got-before-1, "record"))
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
	anchors map[anchor]uint64 // the record that first says so
	torn    map[string]bool   // segments left with half a line at their end
	signed  bool              // anchors count only up to the record upto
	upto    uint64
}

func collectNotes(checks []*segmentCheck) notes {
	all := notes{anchors: make(map[anchor]uint64), torn: make(map[string]bool)}
	for _, c := range checks {
		for _, n := range c.notes {
			switch n.Action {
			case ActionAnchor:
				a := anchor{seq: n.Seq}
				k, err := hex.Decode(a.prev[:], []byte(n.Hash[:min(len(n.Hash), 64)]))
				if _, there := all.anchors[a]; err == nil && k == 32 && !there {
					all.anchors[a] = n.at
				}
			case ActionTorn:
				all.torn[n.Segment] = true
			}
		}
	}
	return all
}
