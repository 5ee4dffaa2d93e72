package main

import (
	"context"
	"os"
	"syscall"
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

// endGone ends what has gone. Of a container its engine tells how it ended, or a
// hook ends it, which fails where nothing is left to end: one is left to them
// until the next look.
func (c *captures) endGone() {
	own, err := namespaceOf("/proc/self/ns/net")
	if err != nil {
		c.st.settings.log.Error("namespaces that have ended cannot be told", "error", err)
		return
	}
	late := map[string]bool{}
	for _, a := range c.attachments() {
		// While the gateway has sockets in it no other namespace has its inode.
		if at, err := namespaceOf(a.NetNS); err == nil && at.Dev == own.Dev && at.Ino == a.Inode {
			continue
		}
		if a.Container != "" && !c.late[a.ID] {
			late[a.ID] = true
			continue
		}
		if err := c.endAttached(a.ID, "the namespace has ended", false); err != nil {
			c.st.settings.log.Warn("sandbox of a namespace that has ended was not ended", "sandbox", a.Sandbox, "netns", a.NetNS, "error", err)
		}
	}
	c.late = late
}

// attachments are the namespaces that are attached now.
func (c *captures) attachments() []attachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]attachment, 0, len(c.open))
	for _, oc := range c.open {
		if oc.attached.ID != "" {
			out = append(out, oc.attached)
		}
	}
	return out
}

// namespaceOf is what tells the file of a namespace from others.
func namespaceOf(path string) (st syscall.Stat_t, err error) {
	return st, os.NewSyscallError("stat", syscall.Stat(path, &st))
}
