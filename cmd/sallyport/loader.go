package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/gateway"
	"sallyport/gateway/inject"
	"sallyport/policy"
	"sallyport/policy/policyfile"
	"sallyport/secrets"
)

// loader turns policy files into snapshots. A load builds everything that
// can fail; only a snapshot that is whole is handed out.
type loader struct {
	paths []string
	vars  map[string]string // of variable blocks
	stdin []byte            // what the path - stands for
	key   []byte            // from which shaped placeholders are derived
	log   hclog.Logger
	only  string                 // the one sandbox whose secrets are fetched ahead; "": all
	pins  *pins                  // what the command of a run may not change; nil of a daemon
	adapt func(*policy.Document) // nil, or a change that a command makes to what was read

	loading sync.Mutex      // held by the one load that is under way
	kept    policyfile.Kept // held by loading

	mu         sync.Mutex // never held while something is read or fetched
	generation uint64
	usable     map[string][]string // by sandbox: the secrets that one of its rules injects
	alerts     alertSetup
	declared   []policy.Secret // what the store in use was opened for
	store      *secrets.Store
	past       secrets.Past  // of every store
	held       *gateway.Held // follows past
	former     formerSecrets // of policies before
	stop       func()        // ends the store in use
}

// retireAfter is how long a replaced secret store serves the requests that
// began under it.
const retireAfter = time.Minute

// load reads the files anew, and decodes those that have changed. The
// diagnostics hold warnings also when a snapshot is returned.
func (l *loader) load() (snap *gateway.Snapshot, diags *policyfile.Diagnostics) {
	l.loading.Lock()
	defer l.loading.Unlock()
	next, inForce := l.state()
	if !inForce { // nothing flows yet
		return l.make(next, func() {})
	}
	besides(func() { snap, diags = l.make(next, new(unhurried).yield) })
	return snap, diags
}

// make makes the snapshot of one generation.
func (l *loader) make(next uint64, yield func()) (*gateway.Snapshot, *policyfile.Diagnostics) {
	doc, set, setup, diags := l.read(next, yield)
	if diags.HasErrors() {
		return nil, diags
	}
	usable := usableSecrets(doc)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store == nil || !sameSecrets(l.declared, doc.Secrets) {
		if problems := l.openStore(doc.Secrets); len(problems) > 0 {
			diags.AddProblems(problems)
			return nil, diags
		}
	}
	l.generation = next
	l.former, l.declared = l.former.next(l.declared, doc.Secrets, time.Now()), doc.Secrets
	l.usable, l.alerts = usable, setup
	return &gateway.Snapshot{Policy: set, Inject: l.table(set, l.former.table()...), Secrets: l.store, Held: l.held}, diags
}

// read reads the files and makes of them all that needs no secret.
func (l *loader) read(next uint64, yield func()) (doc *policy.Document, set *policy.Set, setup alertSetup, diags *policyfile.Diagnostics) {
	o := l.options()
	o.Yield = yield
	if l.adapt == nil { // it may change what is kept
		o.Keep = &l.kept
	}
	doc, alerts, diags := policyfile.LoadWithAlerts(l.paths, o)
	if diags.HasErrors() {
		return nil, nil, setup, diags
	}
	if l.adapt != nil {
		l.adapt(doc)
	}
	set, problems := policy.CompileYielding(*doc, next, yield)
	diags.AddProblems(problems)
	if diags.HasErrors() {
		return nil, nil, setup, diags
	}
	setup, problems = openAlerts(alerts, l.sinkSecrets(set.SecretCovers))
	diags.AddProblems(problems)
	return doc, set, setup, diags
}

// check says what a load would refuse, and fetches nothing. The document and the
// set are nil if there is something.
func (l *loader) check() (*policy.Document, *policy.Set, *policyfile.Diagnostics) {
	doc, set, _, diags := l.read(1, func() {})
	if diags.HasErrors() {
		return nil, nil, diags
	}
	for _, s := range doc.Secrets {
		_, problems := openSecret(s, l.pins)
		diags.AddProblems(problems)
	}
	if diags.HasErrors() {
		return nil, nil, diags
	}
	return doc, set, diags
}

// state returns the generation to load, and whether one has been before it.
func (l *loader) state() (next uint64, inForce bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generation + 1, l.store != nil
}

func (l *loader) options() policyfile.Options {
	o := policyOptions()
	o.Vars, o.Stdin = l.vars, l.stdin
	return o
}

// openStore opens the sources that declared name and retires the old store,
// whose values stay known.
func (l *loader) openStore(declared []policy.Secret) []policy.Problem {
	var specs []secrets.Spec
	var problems []policy.Problem
	for _, s := range declared {
		src, wrong := openSecret(s, l.pins)
		problems = append(problems, wrong...)
		specs = append(specs, secrets.Spec{Name: s.Name, Kind: s.Source.Kind, Source: src, TTL: s.TTL, Stale: s.OnErrorStale})
	}
	if len(problems) > 0 {
		return problems
	}
	if l.held == nil {
		l.held = gateway.Follow(&l.past)
	}
	held := l.held
	changed := make(chan struct{}, 1)
	store, err := secrets.Open(secrets.Options{Specs: specs, Logger: l.log.Named("secrets"), Keep: keepFor, Past: &l.past, OnChange: func(string) {
		select {
		case changed <- struct{}{}:
		default: // one more is due already
		}
	}})
	if err != nil {
		return []policy.Problem{{Severity: policy.Error, Summary: err.Error()}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	running.Go(func() {
		for {
			select {
			case <-changed:
				held.Update()
			case <-ctx.Done():
				return
			}
		}
	})
	if l.stop != nil {
		time.AfterFunc(retireAfter, l.stop)
	}
	l.store = store
	l.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := store.Close(); err != nil {
			l.log.Warn("secret store was not closed", "error", err)
		}
	})
	return nil
}

// close ends the store in use.
func (l *loader) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		l.stop()
	}
}

// secretsOf returns the names of the secrets that a sandbox of the policy in
// force may use.
func (l *loader) secretsOf(sandbox string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usable[sandbox]
}

// usableSecrets lists, for each sandbox, the secrets that its own rules or
// those of its groups inject.
func usableSecrets(doc *policy.Document) map[string][]string {
	groups := map[string][]policy.Rule{}
	for _, g := range doc.Groups {
		groups[g.Name] = g.Rules
	}
	out := map[string][]string{}
	for _, sb := range doc.Sandboxes {
		var names []string
		collect := func(rules []policy.Rule) {
			for _, r := range rules {
				for _, ref := range r.Inject {
					names = append(names, ref.Name)
				}
			}
		}
		collect(sb.Rules)
		for _, use := range sb.Use {
			collect(groups[use.Name])
		}
		slices.Sort(names)
		out[sb.Name] = slices.Compact(names)
	}
	return out
}

// table makes the table of a policy and of the secrets that are gone.
func (l *loader) table(set *policy.Set, gone ...inject.Secret) *inject.Table {
	list := gone
	kinds := sourceKinds()
	for _, s := range set.Secrets() {
		one := inject.Secret{Name: s.Name, Spec: s, Covers: func(host string) bool { return set.SecretCovers(s.Name, host) }}
		if use := kinds[s.Source.Kind].use; use != nil {
			use(s.Source.Attrs, &one)
		}
		list = append(list, one)
	}
	return inject.NewTable(list, set.Sandboxes(), l.key)
}

// sourceFiles are the files that secrets are read from.
func (l *loader) sourceFiles() []string {
	return l.reads(func(k sourceKind) func(attributes) []string { return k.files })
}

// sourceVariables are the variables that secrets are read from.
func (l *loader) sourceVariables() []string {
	return l.reads(func(k sourceKind) func(attributes) []string { return k.variables })
}

// passedVariables are the variables that sources are given to fetch with,
// such as the token of a command that mints others.
func (l *loader) passedVariables() []string {
	return l.reads(func(k sourceKind) func(attributes) []string { return k.passes })
}

func (l *loader) reads(what func(sourceKind) func(attributes) []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	kinds := sourceKinds()
	var out []string
	for _, s := range l.declared {
		if f := what(kinds[s.Source.Kind]); f != nil {
			out = append(out, f(s.Source.Attrs)...)
		}
	}
	return out
}

// loadKey reads the key of a state folder from which placeholders are
// derived, or makes it.
func loadKey(state string) ([]byte, error) {
	path := filepath.Join(state, "placeholder.key")
	key, err := os.ReadFile(path)
	switch {
	case err == nil && len(key) == 32:
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("%s: not a key of 32 bytes; remove it, and sandboxes get new placeholders", path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	key = make([]byte, 32)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	f, err := os.CreateTemp(state, "placeholder-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	// Link fails where another process was quicker; its key is then read.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}
