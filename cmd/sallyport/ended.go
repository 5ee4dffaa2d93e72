package main

import (
	"context"
	"time"
)

// lookAgain is how often attached namespaces are looked for. The gateway's own
// sockets keep one alive that nobody else has, so it must ask where it is.
const lookAgain = 5 * time.Second

// watchEnds ends sandboxes whose namespace is no longer where it was
// attached: its name was removed, or its process has ended.
func (c *captures) watchEnds(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.endGone()
		}
	}
}

func (c *captures) endGone() {
	for _, a := range c.kept() {
		if a.Removed || c.st.sandboxes.ByID(a.ID) == nil {
			continue
		}
		now := attachment{NetNS: a.NetNS}
		if now.identify() == nil && now.same(a) {
			continue
		}
		if err := c.endAttached(a.ID, "the namespace has ended", false); err != nil {
			c.st.settings.log.Warn("sandbox of a namespace that has ended was not ended", "sandbox", a.Sandbox, "netns", a.NetNS, "error", err)
		}
	}
}
