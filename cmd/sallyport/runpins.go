package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

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

// seal says that the command begins. It waits for what is being read.
func (p *pins) seal() {
	p.sealed.Store(true)
	p.mu.Lock()
	kept := make([]*keptSource, 0, len(p.kept))
	for _, k := range p.kept {
		kept = append(kept, k)
	}
	p.mu.Unlock()
	for _, k := range kept {
		k.wait()
	}
}

// pin remembers those of paths that the command can change, as they are now,
// and returns them. After seal nothing more is remembered.
func (p *pins) pin(paths []string) (pinned []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range paths {
		if !p.changes(path) {
			continue
		}
		pinned = append(pinned, path)
		if _, known := p.marks[path]; !known && !p.sealed.Load() {
			p.marks[path] = markOf(path)
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
		if !known {
			return fmt.Errorf("%s was not named when the run began, and its command can change it; begin a new run to use it", path)
		}
		if markOf(path) != was {
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
		p.kept[key] = &keptSource{source: src, pins: p, path: read[i]}
	}
	return p.kept[key], nil
}

// keptSource is a source that is read until the command begins, and then has
// the value that it had.
type keptSource struct {
	source secrets.Source
	pins   *pins
	path   string // that the command can change

	mu    sync.Mutex // held while it is read
	have  bool
	value secrets.Value
}

// Fetch returns the value of the start.
func (k *keptSource) Fetch(ctx context.Context) (secrets.Fetched, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.have {
		return secrets.Fetched{Value: k.value}, nil
	}
	if k.pins.sealed.Load() {
		return secrets.Fetched{}, fmt.Errorf("no value was there when the run began, and none is read later, since the run's command can change %s; begin a new run", k.path)
	}
	f, err := k.source.Fetch(ctx)
	if err != nil {
		return secrets.Fetched{}, err
	}
	k.have, k.value = true, f.Value
	return secrets.Fetched{Value: k.value}, nil
}

// wait waits until it is not being read.
func (k *keptSource) wait() {
	k.mu.Lock()
	defer k.mu.Unlock()
}

// pinnedSource is a source that is asked only while its files are what they
// were at the start.
type pinnedSource struct {
	secrets.Source
	pins    *pins
	paths   []string
	written []string // by the source itself
}

// Fetch asks the source.
func (s *pinnedSource) Fetch(ctx context.Context) (secrets.Fetched, error) {
	if err := s.pins.check(s.paths); err != nil {
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

// commandFiles are the files that a command line can name: the program, every
// argument, and what follows the = of one. Commands run in the root folder.
func commandFiles(argv []string) []string {
	var out []string
	for _, arg := range argv {
		names := []string{arg}
		if _, value, ok := strings.Cut(arg, "="); ok {
			names = append(names, value)
		}
		for _, name := range names {
			if name != "" && len(name) < syscall.PathMax {
				out = append(out, filepath.Join("/", name))
			}
		}
	}
	return out
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
