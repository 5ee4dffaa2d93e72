package main

import (
	"fmt"
	"os"
	"slices"
)

// hide remembers what a source reads, which the command is not given. Once the
// command has begun nothing more can be taken from it: a source that a reload
// names must read what was taken before, or it would send what the command
// sees.
func (p *pins) hide(k sourceKind, a attributes) error {
	list := func(f func(attributes) []string) []string {
		if f == nil {
			return nil
		}
		return f(a)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range list(k.files) {
		if p.sealed.Load() && !p.taken[path] {
			return fmt.Errorf("file %s was not hidden when the run began, and its command can have read it; begin a new run to use it", path)
		}
		p.taken[path] = true
	}
	secret := slices.Clone(list(k.passes)) // the policy's own
	secret = append(slices.DeleteFunc(secret, isCommon), list(k.variables)...)
	for _, name := range secret {
		key := "$" + name // which no absolute path is
		if _, set := os.LookupEnv(name); set && p.sealed.Load() && !p.taken[key] {
			return fmt.Errorf("environment variable %s was not hidden when the run began, and its command can have read it; begin a new run to use it", name)
		}
		p.taken[key] = true
	}
	return nil
}
