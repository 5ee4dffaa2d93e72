//go:build !linux

package upstream

// addressWatch cannot tell whether addresses have changed.
type addressWatch struct{}

func (*addressWatch) changed() bool { return true }

func (*addressWatch) close() {}
