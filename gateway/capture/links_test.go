//go:build linux

package capture

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestWatchLinksOutlivesFlood: more changes of a link than the kernel keeps for
// who follows them, as a sandbox makes by taking its end up and down, do not keep
// later links from being seen.
func TestWatchLinksOutlivesFlood(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen, began, done := make(chan string, 1<<16), make(chan bool, 1), make(chan error, 1)
	slow := make(chan bool)
	go func() {
		done <- inNamespace(s.host, func() error {
			return WatchLinks(ctx, func(name string, gone bool) {
				select {
				case began <- true:
				default:
				}
				<-slow // nobody follows meanwhile
				if !gone {
					seen <- name
				}
			})
		})
	}()
	inside(t, s.host, func() error { return configure("sb0") })
	<-began
	inside(t, s.host, func() error {
		l, err := netlink.LinkByName("sb0")
		for i := range 5_000 {
			if err == nil {
				err = netlink.LinkSetAlias(l, fmt.Sprint(i))
			}
		}
		return err
	})
	close(slow)
	inside(t, s.host, func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "late"}})
	})
	limit := time.After(30 * time.Second)
	for lists := 0; ; {
		name := ""
		select {
		case name = <-seen:
		case err := <-done:
			t.Fatalf("links are not followed any more: %v", err)
		case <-limit:
			t.Fatal("a link that was made after the flood was not seen")
		}
		if name == "" {
			lists++ // the first is of when it began
		}
		if name == "late" || lists > 1 {
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
