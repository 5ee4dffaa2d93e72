//go:build linux

package capture

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// WatchLinks calls changed for each network interface of this namespace that
// appears, changes or goes, until ctx ends. changed must not block for long.
func WatchLinks(ctx context.Context, changed func(name string, gone bool)) error {
	updates := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribe(updates, ctx.Done()); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-updates:
			if !ok {
				return errors.New("the kernel closed the subscription to links")
			}
			changed(u.Attrs().Name, u.Header.Type == unix.RTM_DELLINK)
		}
	}
}
