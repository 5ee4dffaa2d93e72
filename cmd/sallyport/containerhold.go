package main

// hold waits until nobody else looks at a container, and returns what lets the
// next one.
func (c *captures) hold(id string) (release func()) {
	for {
		c.mu.Lock()
		busy, ok := c.held[id]
		if !ok {
			mine := make(chan struct{})
			c.held[id] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.held, id)
				c.mu.Unlock()
				close(mine)
			}
		}
		c.mu.Unlock()
		<-busy
	}
}

// holdFirst holds a container for somebody who knows more than an answer of its
// engine that is on its way: that one is void.
func (c *captures) holdFirst(id string) (release func()) {
	release = c.hold(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if void, ok := c.asking[id]; ok {
		*void = true
	}
	return release
}

// ask is called before an engine is asked about a container, by one goroutine
// at a time. What it returns is called once, when the container is held, and
// says whether the answer is void.
func (c *captures) ask(id string) (overtaken func() bool) {
	void := new(bool)
	c.mu.Lock()
	c.asking[id] = void
	c.mu.Unlock()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asking, id)
		return *void
	}
}
