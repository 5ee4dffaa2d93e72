package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
)

// segmentCheck is the check of one segment by itself.
type segmentCheck struct {
	path string
	n    uint64

	records     uint64
	lines       int
	bytes       int64
	first, last head
	lastHash    [32]byte
	firstIntact bool  // the second record confirms the first
	torn        int64 // bytes after the last newline
	notes       []placedNote
	broken      *Break
	err         error

	o           VerifyOptions
	met         int // records that were expected
	checkpoints int
	signed      uint64
	keys        map[string]bool

	doubt *doubt
}

// placedNote is a note with the number of its record.
type placedNote struct {
	*Note
	at uint64
}

// doubt is a broken link of which it is not known yet which end is at fault.
type doubt struct {
	line int // of the record whose prev does not match
	head head
	hash [32]byte
}

// verifyBlock is read at a time. It holds many records, so that few are copied.
const verifyBlock = 1 << 20

// noteMark is how a record of kind audit goes on after its head.
const noteMark = `","kind":"audit",`

// run reads the segment up to its end or first break.
func (c *segmentCheck) run(r io.Reader) {
	in := bufio.NewReaderSize(r, verifyBlock)
	for c.broken == nil {
		line, err := in.ReadSlice('\n')
		c.bytes += int64(len(line))
		switch {
		case errors.Is(err, io.EOF):
			c.torn = int64(len(line))
			c.settle(false)
			return
		case errors.Is(err, bufio.ErrBufferFull):
			c.broken = c.breakAt(c.lines+1, 0, "the line is too long to be a record")
		case err != nil:
			c.err = err
			return
		default:
			c.lines++
			c.line(line[:len(line)-1])
		}
	}
}

func (c *segmentCheck) breakAt(line int, seq uint64, reason string) *Break {
	return &Break{File: c.path, Line: line, Seq: seq, Reason: reason}
}

// line checks one record against the one before.
func (c *segmentCheck) line(line []byte) {
	h, ok := parseHead(line)
	if !ok {
		c.settle(false)
		if c.broken == nil {
			c.broken = c.breakAt(c.lines, 0, "the line is no record")
		}
		return
	}
	hash := sha256.Sum256(line)
	if c.doubt != nil {
		c.settle(h.prev == c.doubt.hash)
		return
	}
	if c.records == 0 {
		c.first = h
	} else {
		switch {
		case h.seq != c.last.seq+1:
			c.broken = c.breakAt(c.lines, h.seq, wrongSeq(h.seq, c.last.seq))
			return
		case h.prev != c.lastHash:
			c.doubt = &doubt{line: c.lines, head: h, hash: hash}
			return
		}
		c.firstIntact = c.firstIntact || c.records == 1
	}
	c.records++
	c.last, c.lastHash = h, hash
	if want, ok := c.o.Expect[h.seq]; ok {
		if want != hex.EncodeToString(hash[:]) {
			c.broken = c.breakAt(c.lines, h.seq, "the record is not the one that was expected")
			return
		}
		c.met++
	}
	c.note(line)
}

// settle says which end of a broken link is at fault: the record before, if
// the next record confirms the one whose prev does not match, or if there is no
// next one to ask; otherwise the record itself.
func (c *segmentCheck) settle(confirmed bool) {
	d := c.doubt
	if d == nil {
		return
	}
	if confirmed || c.torn >= 0 && c.lines == d.line {
		c.broken = c.breakAt(d.line-1, c.last.seq, altered)
		return
	}
	c.broken = c.breakAt(d.line, d.head.seq, unlinked)
}

// note keeps what an event of kind audit says.
func (c *segmentCheck) note(line []byte) {
	rest := line[bytes.Index(line, []byte(headPrev))+len(headPrev)+64:]
	if !bytes.HasPrefix(rest, []byte(noteMark)) {
		return
	}
	e, err := DecodeLine(line)
	if err != nil || e.Note == nil {
		return
	}
	c.notes = append(c.notes, placedNote{e.Note, c.last.seq})
	if e.Note.Action == ActionCheckpoint {
		c.checkpoint(e.Note)
	}
}

// checkpoint checks the checkpoint that the last record is.
func (c *segmentCheck) checkpoint(n *Note) {
	key, err := checkCheckpoint(n, c.last.seq-1, c.last.prev)
	if err == nil && c.o.Key != nil && !c.o.Key.Equal(key) {
		err = errors.New("the checkpoint is signed by another key")
	}
	if err != nil {
		c.broken = c.breakAt(c.lines, c.last.seq, err.Error())
		return
	}
	c.checkpoints++
	c.signed = n.Seq
	if c.keys == nil {
		c.keys = make(map[string]bool)
	}
	c.keys[n.Key] = true
}
