package main

import (
	"errors"
	"fmt"
	"os"

	"sallyport/audit"
)

// maxUnreadable bounds how many lines that are no record are named.
const maxUnreadable = 20

// unreadable counts the lines of the log that are no record and names the first
// of them on standard error: an answer without them is not whole.
type unreadable struct{ lines uint64 }

// note says what is wrong with a line, and reports whether err is about one.
// After another error there is nothing more to read.
func (u *unreadable) note(err error) bool {
	var line *audit.LineError
	if !errors.As(err, &line) {
		return false
	}
	switch u.lines++; {
	case u.lines <= maxUnreadable:
		fmt.Fprintln(os.Stderr, "sallyport: error:", err)
	case u.lines == maxUnreadable+1:
		fmt.Fprintln(os.Stderr, "sallyport: error: more lines cannot be read as a record; they are only counted")
	}
	return true
}

// failure is the error of an answer in which the lines are missing; nil where
// none is.
func (u *unreadable) failure() error {
	if u.lines == 0 {
		return nil
	}
	return &exit{code: exitFailed, err: fmt.Errorf("the log has %s that cannot be read as a record; the answer is without what they held", several(u.lines, "line")),
		hint: "`sallyport audit verify` names the first"}
}
