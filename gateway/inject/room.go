package inject

import "sallyport/policy"

// Room is the memory that decompressing may take, and messages that are held
// to look into them. Take is asked before n bytes more are taken, and says
// whether there are so many; fewer than 0 are given back. What is not given
// back is taken until the exchange has ended. Several goroutines may ask.
type Room interface{ Take(n int64) bool }

// takeRoom takes n bytes of a room; a nil one has any number.
func takeRoom(r Room, n int64) error {
	if r == nil || n == 0 || r.Take(n) {
		return nil
	}
	return &Refusal{Reason: policy.RateLimited, Message: "too many compressed bodies and messages are under way at once; ask for fewer, read their answers, or do without compression"}
}

// lease is what one decoder has taken of a room.
type lease struct {
	room Room
	n    int64 // bytes
	err  error // when there was no more
}

// need takes what is missing of n bytes in all.
func (l *lease) need(n int64) error {
	if l.err != nil || n <= l.n {
		return l.err
	}
	if l.err = takeRoom(l.room, n-l.n); l.err == nil {
		l.n = n
	}
	return l.err
}

// end gives everything back.
func (l *lease) end() {
	_ = takeRoom(l.room, -l.n) // there is always room for less
	l.n = 0
}
