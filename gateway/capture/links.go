//go:build linux

package capture

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// linkBuffer is the receive buffer for what happens to links, in bytes.
	linkBuffer = 4 << 20
	// linkWait is the time before links are followed again after the kernel had
	// more to tell than the buffer holds.
	linkWait = 20 * time.Millisecond
)

// WatchLinks calls changed for each network interface of this namespace that
// appears, gets another name or master, is taken up or down by the host, or goes, until ctx ends; without a name
// where something may have happened that was not told. changed must not block
// for long. A sandbox can make its own end go up and down as often as it likes:
// that is no change, and if the kernel had too much to tell, links are listed
// and followed anew.
func WatchLinks(ctx context.Context, changed func(name string, gone bool)) error {
	w := linkWatch{known: map[int]knownLink{}, changed: changed}
	for {
		if err := w.follow(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(linkWait):
		}
	}
}

// knownLink is what makes a link another one.
type knownLink struct {
	name   string
	master int
	up     bool // by the host's own setting
}

func linkOf(l netlink.Link) knownLink {
	a := l.Attrs()
	return knownLink{a.Name, a.MasterIndex, a.Flags&net.FlagUp != 0}
}

type linkWatch struct {
	known   map[int]knownLink // by index
	changed func(name string, gone bool)
}

// follow follows one subscription until it breaks off or ctx ends. It is there
// before links are listed, so that nothing happens between the two.
func (w *linkWatch) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan netlink.LinkUpdate, 64)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{ReceiveBufferSize: linkBuffer})
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	defer func() {
		go func() {
			for range updates { // lets its reader end
			}
		}()
	}()
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	w.list(links)
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-updates:
			if !ok {
				return nil // the kernel had more to tell than there was room for
			}
			w.take(u)
		}
	}
}

// list makes known agree with a list of links.
func (w *linkWatch) list(links []netlink.Link) {
	now := make(map[int]knownLink, len(links))
	for _, l := range links {
		now[l.Attrs().Index] = linkOf(l)
	}
	before := w.known
	w.known = now
	for index, old := range before {
		if now[index].name != old.name {
			w.changed(old.name, true)
		}
	}
	w.changed("", false)
}

// take takes in one message. Those of bridges tell of ports.
func (w *linkWatch) take(u netlink.LinkUpdate) {
	a := u.Attrs()
	now, old := linkOf(u), w.known[a.Index]
	switch {
	case u.IfInfomsg.Family == unix.AF_BRIDGE:
		w.changed(a.Name, false)
	case u.Header.Type == unix.RTM_DELLINK:
		delete(w.known, a.Index)
		w.changed(a.Name, true)
	case now != old:
		w.known[a.Index] = now
		if old.name != "" && old.name != now.name {
			w.changed(old.name, true)
		}
		w.changed(now.name, false)
	}
}
