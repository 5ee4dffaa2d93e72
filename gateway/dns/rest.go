package dns

import (
	"errors"
	"time"
)

// ErrRest is returned for a socket on which nothing has come for a while.
var ErrRest = errors.New("dns: nothing comes")

// mayRest has the next wait on a socket end after Options.Rest. It is set once,
// not for each question.
func (s *Server) mayRest(socket any) {
	if s.o.Rest <= 0 {
		return
	}
	until := time.Now().Add(s.o.Rest) // an error of either comes again from the wait
	switch l := socket.(type) {
	case interface{ SetReadDeadline(time.Time) error }:
		_ = l.SetReadDeadline(until)
	case interface{ SetDeadline(time.Time) error }:
		_ = l.SetDeadline(until)
	}
}

// late reports whether a wait ended because of its deadline.
func late(err error) bool {
	var late interface{ Timeout() bool }
	return errors.As(err, &late) && late.Timeout()
}
