package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// watchdog tells systemd, as often as its unit asks for it, that the daemon
// still answers: over its control socket, as anybody else would ask it. It
// returns at once where there is no watchdog.
func (d *daemonProcess) watchdog(ctx context.Context) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		return err
	}
	interval /= 3
	client := &http.Client{Timeout: interval, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.control.path)
		}}}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := answers(ctx, client); err == nil {
			notify(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			d.settings.log.Error("the daemon does not answer itself; systemd is not told that it is well", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func answers(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sallyport/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
