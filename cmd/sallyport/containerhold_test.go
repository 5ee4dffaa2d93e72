package main

import "testing"

// TestHookVoidsAnswer: an engine is asked about a container while nobody holds
// it, and its answer is void once a hook has acted on the container.
func TestHookVoidsAnswer(t *testing.T) {
	c := &captures{held: map[string]chan struct{}{}, asking: map[string]*bool{}}
	for name, act := range map[string]struct {
		do   func()
		void bool
	}{
		"nobody":            {func() {}, false},
		"a hook":            {func() { c.holdFirst("c1")() }, true},
		"a hook of another": {func() { c.holdFirst("c2")() }, false},
		"another answer":    {func() { c.hold("c1")() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			overtaken := c.ask("c1")
			act.do()
			defer c.hold("c1")()
			if got := overtaken(); got != act.void {
				t.Errorf("void: %v, want %v", got, act.void)
			}
		})
	}
	c.holdFirst("c1")() // nobody asks: nothing to void
	if len(c.held) != 0 || len(c.asking) != 0 {
		t.Errorf("left behind: %v %v", c.held, c.asking)
	}
}
