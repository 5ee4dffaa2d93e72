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
	sealed  atomic.Bool            // the command has begun

	mu    sync.Mutex
	taken map[string]bool // files and variables that the command does not have, since sources have them
	marks map[string]mark
	kept  map[string]*keptSource // by kind and attributes, so that a reload finds its own
}

func newPins(changes func(string) bool) *pins {
	return &pins{changes: changes, taken: map[string]bool{}, marks: map[string]mark{}, kept: map[string]*keptSource{}}
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
	for path, was := range p.marks {
		if was.large {
			continue // it stays refused
		}
		p.marks[path] = markOf(path)
		if p.marks[path] != was { // by the program of a source, say
			hints = append(hints, fmt.Sprintf("%s was written while the secrets were fetched; when it is again, the command whose arguments name it is not used any more: better it names that by itself", path))
		}
	}
	slices.Sort(hints)
	return hints
}

// pin remembers those of paths that the command can change, as they are now,
// and returns them. After seal nothing more is remembered.
func (p *pins) pin(paths []string) (pinned []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, named := range paths {
		for _, path := range p.changeableIn(named) {
			pinned = append(pinned, path)
			if _, known := p.marks[path]; !known && !p.sealed.Load() {
				p.marks[path] = markOf(path)
			}
		}
	}
	return pinned
}

// check says which of the pinned paths is not what it was.
func (p *pins) check(pinned []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range pinned {
		was, known := p.marks[path]
		switch {
		case !known:
			return fmt.Errorf("%s was not named when the run began, and its command can change it; begin a new run to use it", path)
		case was.large:
			return fmt.Errorf("folder %s cannot be held to what it was when the run began: more than %d entries or %d MiB, or not all readable; name what is needed in it, or a folder that the command cannot change",
				path, maxEntries, maxFolder>>20)
		case p.sealed.Load() && markOf(path) != was: // before, nothing of the command has begun
			return fmt.Errorf("%s has changed since the run began, and its command can change it; begin a new run to use what is there now", path)
		}
	}
	return nil
}

// renew remembers anew what the gateway itself has written.
func (p *pins) renew(paths []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range paths {
		if _, known := p.marks[path]; known {
			p.marks[path] = markOf(path)
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
	if k.command != nil {
		read = append(read, commandFiles(k.command(a))...)
	}
	var written []string
	if k.written != nil {
		written = k.written(a)
		for _, path := range written {
			read = slices.DeleteFunc(read, func(other string) bool { return other == oauth2.NextFile(path) })
		}
	}
	pinned := p.pin(read)
	if err := p.check(pinned); err != nil {
		return refusedSource{err}, nil
	}
	src, err := k.open(a)
	if err != nil || len(pinned) == 0 {
		return src, err
	}
	return &pinnedSource{Source: src, pins: p, paths: pinned, written: written}, nil
}

// pinnedSource is a source that is asked only while its files are what they
// were at the start.
type pinnedSource struct {
	secrets.Source
	pins    *pins
	paths   []string
	written []string    // by the source itself
	during  atomic.Bool // one of the files changed while the source was asked
}

// Fetch asks the source. What changes meanwhile may be its own doing or the
// command's, who can tell when a program reads a file; so it counts as changed.
func (s *pinnedSource) Fetch(ctx context.Context) (secrets.Fetched, error) {
	if err := s.pins.check(s.paths); err != nil {
		if s.during.Load() {
			err = fmt.Errorf("%w (it changed while the source itself was asked: if that writes it, let the program name it by itself, not its arguments)", err)
		}
		return secrets.Fetched{}, err
	}
	f, err := s.Source.Fetch(ctx)
	s.pins.renew(s.written)
	s.during.Store(s.pins.check(s.paths) != nil)
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
	return p.check(p.pin(paths))
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
