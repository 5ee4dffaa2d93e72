package secrets

import (
	"context"
	"time"
)

// Source fetches one secret. Fetch blocks until the value is there, ctx ends
// or the source fails; it is never called twice at once for one secret. Its
// errors name what is wrong and never quote a value.
type Source interface {
	Fetch(ctx context.Context) (Fetched, error)
}

// Fetched is what a source gave.
type Fetched struct {
	Value Value
	TTL   time.Duration // how long it is good; 0: until the source says otherwise
}

// Watcher is a Source that knows when its value changed. Watch returns at
// once; changed is called, from any goroutine, after each change until ctx
// ends.
type Watcher interface {
	Source
	Watch(ctx context.Context, changed func()) error
}
