package audit

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"
)

// crockford is the alphabet of a ULID, in order, so that IDs sort by time.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// idLen is the length of a ULID in characters: 48 bits of milliseconds and 80
// random bits, five bits each.
const idLen = 26

// NewID returns a ULID: 26 characters that sort by the millisecond they were
// made in. It is unique, and the part that makes it so comes from the
// runtime's ChaCha8 generator, which is seeded by the kernel.
func NewID() string {
	var b [idLen]byte
	return string(appendID(b[:0], time.Now()))
}

// IDTime returns the time at which an ID was made, to the millisecond.
func IDTime(id string) (time.Time, error) {
	if len(id) != idLen {
		return time.Time{}, errors.New("id: not a ULID")
	}
	ms := uint64(0)
	for i := range idLen {
		v := strings.IndexByte(crockford, id[i])
		if v < 0 {
			return time.Time{}, errors.New("id: not a ULID")
		}
		if i < 10 {
			ms = ms<<5 | uint64(v)
		}
	}
	return time.UnixMilli(int64(ms & (1<<48 - 1))).UTC(), nil
}

// appendID appends a new ULID of the time t.
func appendID(dst []byte, t time.Time) []byte {
	ms := uint64(max(t.UnixMilli(), 0)) & (1<<48 - 1)
	hi, lo := rand.Uint64(), rand.Uint64() // 80 bits of them are used
	var b [idLen]byte
	for i := 9; i >= 0; i-- {
		b[i] = crockford[ms&31]
		ms >>= 5
	}
	for i := 17; i >= 10; i-- {
		b[i] = crockford[hi&31]
		hi >>= 5
	}
	for i := 25; i >= 18; i-- {
		b[i] = crockford[lo&31]
		lo >>= 5
	}
	return append(dst, b[:]...)
}
