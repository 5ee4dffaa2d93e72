package main

import (
	"context"
	"strings"
	"testing"

	"sallyport/secrets"
)

// stuckSource answers when it is let go.
type stuckSource struct{ asked, free chan struct{} }

// Fetch waits.
func (s stuckSource) Fetch(context.Context) (secrets.Fetched, error) {
	close(s.asked)
	<-s.free
	v, err := secrets.NewValue([]byte("too-late-value"))
	return secrets.Fetched{Value: v}, err
}

// TestSealWaitsForNoFile: a file that does not answer holds no run up, and what
// it says after the command has begun is not taken.
func TestSealWaitsForNoFile(t *testing.T) {
	p := newPins(func(string) bool { return true })
	stuck := stuckSource{make(chan struct{}), make(chan struct{})}
	k := &keptSource{source: stuck, pins: p, path: "/reach/a"}
	p.kept["one"] = k
	fetched := make(chan error)
	go func() {
		_, err := k.Fetch(context.Background())
		fetched <- err
	}()
	<-stuck.asked
	if hints := p.seal(); len(hints) != 1 || !strings.Contains(hints[0], "/reach/a") { // it returned although nothing has answered
		t.Errorf("hints: %q", hints)
	}
	close(stuck.free)
	if err := <-fetched; err == nil || !strings.Contains(err.Error(), "no value was there when the run began") {
		t.Errorf("%v", err)
	}
	if f, err := k.Fetch(t.Context()); err == nil {
		t.Errorf("later: %v", f.Value.IsZero())
	}
}

// TestSealWaitsForAPlugin: somebody may have to touch a key first.
func TestSealWaitsForAPlugin(t *testing.T) {
	p := newPins(func(string) bool { return true })
	stuck := stuckSource{make(chan struct{}), make(chan struct{})}
	k := &keptSource{source: stuck, pins: p, path: "/reach/a", slow: true}
	p.kept["one"] = k
	sealed := make(chan []string)
	go func() { _, _ = k.Fetch(context.Background()) }()
	<-stuck.asked
	go func() { sealed <- p.seal() }()
	close(stuck.free)
	if hints := <-sealed; len(hints) > 0 {
		t.Errorf("hints: %q", hints)
	}
	if f, err := k.Fetch(t.Context()); err != nil || f.Value.Reveal() != "too-late-value" {
		t.Errorf("%v", err)
	}
}
