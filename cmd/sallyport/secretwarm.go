package main

import (
	"context"
	"sync"
	"time"

	"sallyport/gateway"
)

// warmTime bounds how long a load waits for the sources that are read at once.
const warmTime = time.Second

// warm fetches the secrets of sources on this machine, before the snapshot is
// in force: a value that has never been fetched cannot be recognised where a
// sandbox sends it, for example from a file that lies in its folder. Those of
// services are fetched when they are first used. What cannot be had is logged,
// and tried again then.
func (l *loader) warm(snap *gateway.Snapshot) {
	ctx, cancel := context.WithTimeout(context.Background(), warmTime)
	defer cancel()
	kinds := sourceKinds()
	var all sync.WaitGroup
	for _, s := range snap.Policy.Secrets() {
		if kinds[s.Source.Kind].local {
			all.Go(func() { _, _ = snap.Secrets.Get(ctx, s.Name) }) // the store logs why not
		}
	}
	all.Wait()
	snap.Held.Update(snap.Secrets.Held())
}
