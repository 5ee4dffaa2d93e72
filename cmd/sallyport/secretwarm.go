package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"sallyport/gateway"
)

// warmTime bounds how long a load waits for the sources of secrets.
const warmTime = time.Second

// warm fetches the secrets that a sandbox's rules may use, before the snapshot
// is in force: a value that was never fetched cannot be recognised where a
// sandbox sends it. Of sources on this machine, such as a file that lies in the
// sandbox's own folder, it fetches every one. A source that does not answer
// holds nothing up for longer than warmTime, and is asked again until it does.
func (l *loader) warm(snap *gateway.Snapshot) {
	ctx, cancel := context.WithTimeout(context.Background(), warmTime)
	defer cancel()
	l.mu.Lock()
	usable := map[string]bool{}
	for sandbox, names := range l.usable {
		for _, name := range names {
			usable[name] = usable[name] || l.only == "" || l.only == sandbox
		}
	}
	l.mu.Unlock()
	kinds := sourceKinds()
	for _, s := range snap.Policy.Secrets() {
		usable[s.Name] = usable[s.Name] || kinds[s.Source.Kind].local
	}
	maps.DeleteFunc(usable, func(_ string, use bool) bool { return !use })
	snap.Secrets.Warm(ctx, slices.Collect(maps.Keys(usable)))
	snap.Held.Update()
}
