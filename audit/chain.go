package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"time"
)

// head is what ties a line to its place in the log.
type head struct {
	time time.Time
	seq  uint64
	prev [32]byte
}

// Parts of the head as appendHead writes it.
const (
	headTime     = `{"schema":"` + Schema + `","time":"`
	headID       = `","id":"`
	headSeq      = `","seq":`
	headInstance = `,"instance":"`
	headPrev     = `","prev":"`
	timeLen      = len("2006-01-02T15:04:05.000000000Z")
)

// parseHead reads the head of a line. It is strict: the log's own encoder is
// the only one that writes lines.
func parseHead(line []byte) (h head, ok bool) {
	r := lineReader{rest: line}
	r.literal(headTime)
	stamp := r.take(timeLen)
	r.literal(headID)
	r.take(idLen)
	r.literal(headSeq)
	h.seq = r.number()
	r.literal(headInstance)
	r.take(idLen)
	r.literal(headPrev)
	prev := r.take(64)
	r.literal(`"`)
	if r.bad || len(line) < 2 || line[len(line)-1] != '}' {
		return head{}, false
	}
	if _, err := hex.Decode(h.prev[:], prev); err != nil {
		return head{}, false
	}
	h.time, ok = parseStamp(stamp)
	return h, ok && h.seq > 0
}

// lineTime is the time of a record, for those who need no more of its head.
func lineTime(line []byte) (time.Time, bool) {
	if len(line) < len(headTime)+timeLen || string(line[:len(headTime)]) != headTime {
		return time.Time{}, false
	}
	return parseStamp(line[len(headTime) : len(headTime)+timeLen])
}

// parseStamp reads what appendTime wrote.
func parseStamp(b []byte) (time.Time, bool) {
	var v [7]int
	for i, f := range [7][2]int{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}, {20, 29}} {
		for _, c := range b[f[0]:f[1]] {
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			v[i] = v[i]*10 + int(c-'0')
		}
	}
	ok := b[4] == '-' && b[7] == '-' && b[10] == 'T' && b[13] == ':' && b[16] == ':' && b[19] == '.' && b[29] == 'Z'
	return time.Date(v[0], time.Month(v[1]), v[2], v[3], v[4], v[5], v[6], time.UTC), ok
}

// lineReader takes a line apart from its front.
type lineReader struct {
	rest []byte
	bad  bool
}

func (r *lineReader) literal(s string) {
	if len(r.rest) < len(s) || string(r.rest[:len(s)]) != s {
		r.bad, r.rest = true, nil
		return
	}
	r.rest = r.rest[len(s):]
}

func (r *lineReader) take(n int) []byte {
	if len(r.rest) < n {
		r.bad, r.rest = true, nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *lineReader) number() uint64 {
	var v uint64
	n := 0
	for n < len(r.rest) && n < 20 && r.rest[n] >= '0' && r.rest[n] <= '9' {
		d := uint64(r.rest[n] - '0')
		if v > (1<<64-1-d)/10 {
			r.bad = true
			return 0
		}
		v = v*10 + d
		n++
	}
	if n == 0 || (n > 1 && r.rest[0] == '0') {
		r.bad = true
	}
	r.rest = r.rest[n:]
	return v
}

// whole reports whether line is a record that the log may go on from.
func whole(line []byte) (head, bool) {
	h, ok := parseHead(line)
	if !ok || bytes.IndexByte(line, '\n') >= 0 || !json.Valid(line) {
		return head{}, false
	}
	return h, true
}
