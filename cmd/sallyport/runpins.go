package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"sallyport/audit"
	"sallyport/secrets"
	"sallyport/secrets/oauth2"
)

// pins hold what a run reads and executes outside the sandbox to what it was
// before the command began, as far as the command can change it: else the
// command would choose what the gateway runs, or reads in its stead. A nil pins
// holds nothing.
type pins struct {
	changes func(path string) bool // by the command
	own     []string               // folders in which the gateway itself writes
	sealed  atomic.Bool            // the command has begun

	mu    sync.Mutex
	taken map[string]bool // files and variables that the command does not have, since sources have them
	marks map[held]mark
	kept  map[string]*keptSource // by kind and attributes, so that a reload finds its own
}

// newPins holds what changes says that the command can change. Of a folder that
// is held, those that are the gateway's own are left out.
func newPins(changes func(string) bool, own ...string) *pins {
	return &pins{changes: changes, own: own, taken: map[string]bool{}, marks: map[held]mark{}, kept: map[string]*keptSource{}}
}

// seal says that the command begins: what is there now is what stays. It
// returns what somebody should know of it.
func (p *pins) seal() (hints []string) {
	p.mu.Lock()
	kept := slices.Collect(maps.Values(p.kept))
	p.mu.Unlock()
	for _, k := range kept {
		if k.wait() {
			hints = append(hints, fmt.Sprintf("a secret's file does not answer, and is not read later, since the command can change %s", k.path))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed.Store(true)
	for h, was := range p.marks {
		if was.large {
			continue // it stays refused
		}
		p.marks[h] = p.mark(h)
		if p.marks[h] != was { // by the program of a source, say
			hints = append(hints, fmt.Sprintf("%s was written while the secrets were fetched; when it is again, the source or sink whose command names it is not used any more: better its program names that by itself", h.path))
		}
	}
	slices.Sort(hints)
	return hints
}

// files are those of paths, none of which is a folder.
func files(paths []string) (out []held) {
	for _, path := range paths {
		out = append(out, held{path: path})
	}
	return out
}

// pin remembers what of the named the command can change, as it is now, and
// returns it. After seal nothing more is remembered.
func (p *pins) pin(named []held) (pinned []held) {
	for _, name := range named {
		pinned = append(pinned, p.changeableIn(name)...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range pinned {
		if _, known := p.marks[h]; !known && !p.sealed.Load() {
			p.marks[h] = p.mark(h)
		}
	}
	return pinned
}

// check says which of the pinned is not what it was. It may read much, and
// holds nobody up.
func (p *pins) check(pinned []held) error {
	for _, h := range pinned {
		p.mu.Lock()
		was, known := p.marks[h]
		sealed := p.sealed.Load() // it is of the same moment
		p.mu.Unlock()
		switch {
		case !known:
			return fmt.Errorf("%s was not named when the run began, and its command can change it; begin a new run to use it", h.path)
		case was.large:
			return fmt.Errorf("folder %s cannot be held to what it was when the run began: more than %d entries or %d MiB, or not all readable; name what is needed in it, or a folder that the command cannot change",
				h.path, maxEntries, maxFolder>>20)
		case sealed && p.mark(h) != was: // before, nothing of the command has begun
			return fmt.Errorf("%s has changed since the run began, and its command can change it; begin a new run to use what is there now (if the source's own program writes it, let the program name it by itself, not its arguments)", h.path)
		}
	}
	return nil
}

// renew remembers anew what the gateway itself has written.
func (p *pins) renew(paths []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range files(paths) {
		if _, known := p.marks[h]; known {
			p.marks[h] = p.mark(h)
		}
	}
}

// source makes the source of a secret, held to what it was at the start.
func (p *pins) source(name string, a attributes) (secrets.Source, error) {
	k := sourceKinds()[name]
	if p == nil {
		return k.open(a)
	}
	if err := p.hide(k, a); err != nil {
		return refusedSource{err}, nil
	}
	read := a.texts("ca_file")
	if k.files != nil {
		read = append(read, k.files(a)...)
	}
	if k.local && len(read) > 0 {
		return p.keep(name, k, a, read)
	}
	var written []string
	if k.written != nil {
		written = k.written(a)
		for _, path := range written {
			read = slices.DeleteFunc(read, func(other string) bool { return other == oauth2.NextFile(path) })
		}
	}
	named := files(read)
	if k.command != nil {
		named = append(named, commandFiles(k.command(a))...)
	}
	pinned := p.pin(named)
	if err := p.check(pinned); err != nil {
		return refusedSource{err}, nil
	}
	src, err := k.open(a)
	if err != nil || len(pinned) == 0 {
		return src, err
	}
	return &pinnedSource{Source: src, pins: p, pinned: pinned, written: written}, nil
}

// pinnedSource is a source that is asked only while its files are what they
// were at the start.
type pinnedSource struct {
	secrets.Source
	pins    *pins
	pinned  []held
	written []string // by the source itself
}

// Fetch asks the source.
func (s *pinnedSource) Fetch(ctx context.Context) (secrets.Fetched, error) {
	if err := s.pins.check(s.pinned); err != nil {
		return secrets.Fetched{}, err
	}
	f, err := s.Source.Fetch(ctx)
	s.pins.renew(s.written)
	return f, err
}

// refusedSource has no value.
type refusedSource struct{ err error }

// Fetch says why not.
func (s refusedSource) Fetch(context.Context) (secrets.Fetched, error) {
	return secrets.Fetched{}, s.err
}

// sinkCommand is the command line of a sink with its program found, and a
// check that it is what it was at the start.
func (p *pins) sinkCommand(argv []string) ([]string, func() error) {
	if p == nil || len(argv) == 0 {
		return argv, func() error { return nil }
	}
	argv = slices.Clone(argv)
	if found, err := exec.LookPath(argv[0]); err == nil && !strings.ContainsRune(argv[0], '/') {
		argv[0] = found
	}
	pinned := p.pin(commandFiles(argv))
	return argv, func() error { return p.check(pinned) }
}

// admit says whether files may be read that a reload names.
func (p *pins) admit(paths []string) error {
	if p == nil {
		return nil
	}
	return p.check(p.pin(files(paths)))
}

// checkedSink is a sink that is used only while check says nothing.
type checkedSink struct {
	audit.Sink
	check func() error
}

// Send hands the notice on.
func (s checkedSink) Send(ctx context.Context, a audit.Alert) error {
	if err := s.check(); err != nil {
		return audit.Permanent(fmt.Errorf("command %w", err))
	}
	return s.Sink.Send(ctx, a)
}
