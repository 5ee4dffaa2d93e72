package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"sallyport/secrets"
)

// keep makes a source whose value stays what it was at the start, if the
// command can change a file of it.
func (p *pins) keep(name string, k sourceKind, a attributes, read []string) (secrets.Source, error) {
	if k.searches {
		read = append(slices.Clone(read), filepath.SplitList(os.Getenv("PATH"))...)
	}
	src, err := k.open(a)
	i := slices.IndexFunc(read, p.changes)
	if err != nil || i < 0 {
		return src, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fmt.Sprintf("%s %q", name, a)
	if p.kept[key] == nil {
		p.kept[key] = &keptSource{source: src, pins: p, path: read[i], slow: k.slow != nil && k.slow(a)}
	}
	return p.kept[key], nil
}

// keptSource is a source that is read until the command begins, and then has
// the value that it had.
type keptSource struct {
	source secrets.Source
	pins   *pins
	path   string // that the command can change
	slow   bool   // somebody may have to do something before there is a value

	reading sync.Mutex // held while it is read
	value   atomic.Pointer[secrets.Value]
}

// Fetch returns the value of the start. What was not read to its end when the
// command began is as good as not read: the rest may be the command's.
func (k *keptSource) Fetch(ctx context.Context) (secrets.Fetched, error) {
	late := fmt.Errorf("no value was there when the run began, and none is read later, since the run's command can change %s; begin a new run", k.path)
	if k.value.Load() == nil {
		if k.pins.sealed.Load() {
			return secrets.Fetched{}, late
		}
		if err := k.read(ctx); err != nil {
			return secrets.Fetched{}, err
		}
	}
	v := k.value.Load()
	if v == nil {
		return secrets.Fetched{}, late
	}
	return secrets.Fetched{Value: *v}, nil
}

func (k *keptSource) read(ctx context.Context) error {
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.value.Load() != nil {
		return nil
	}
	f, err := k.source.Fetch(ctx)
	if err == nil && !k.pins.sealed.Load() {
		k.value.Store(&f.Value)
	}
	return err
}

// wait waits until it is not being read, if that can take somebody's time. It
// says whether it still is.
func (k *keptSource) wait() (unread bool) {
	if k.reading.TryLock() {
		k.reading.Unlock()
		return false
	}
	if !k.slow {
		return true
	}
	fmt.Fprintf(os.Stderr, "sallyport: hint: waiting for the plugin that opens a secret; a key may want to be touched\n")
	k.reading.Lock()
	defer k.reading.Unlock()
	return false
}
