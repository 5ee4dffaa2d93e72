package upstream

// A goroutine begins with a stack of 2 KiB, which grows by doubling when it does
// not suffice. Each time all that is on it is copied, and every pointer into it
// found, which takes longer the deeper it happens: a handshake takes 14 KiB in
// some dozens of calls. Grown at once, in the first function, there is next to
// nothing to copy. Nothing depends on it: who needs more gets more.

// GrowStack8K gives the goroutine a stack of at least 8 KiB.
func GrowStack8K() { grow8(0) }

// GrowStack16K gives the goroutine a stack of at least 16 KiB, on which the
// server's side of a handshake has room.
func GrowStack16K() { grow16(0) }

// growStack32K is likewise, for the client's side, which verifies a chain.
func growStack32K() { grow32(0) }

// What is asked for is somewhat less than the size, and more than half of it.

//go:noinline
func grow8(at int) byte {
	var room [6 << 10]byte
	room[at] = 1
	return room[len(room)-1]
}

//go:noinline
func grow16(at int) byte {
	var room [12 << 10]byte
	room[at] = 1
	return room[len(room)-1]
}

//go:noinline
func grow32(at int) byte {
	var room [16 << 10]byte
	room[at] = 1
	return room[len(room)-1]
}
