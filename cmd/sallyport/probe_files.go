package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// environmentProbe looks whether the variable of a secret is a placeholder.
// What it may be is known outside only, so the value is told there.
func environmentProbe(name string) probeAttempt {
	return func(context.Context) probeResult {
		return probeResult{Promise: "P3", Title: "the secret's variable", Secret: name, Saw: os.Getenv(name)}
	}
}

// fileProbe tries to read a file or folder that holds secrets.
func fileProbe(path string) probeAttempt {
	return func(context.Context) probeResult {
		r := probeResult{Promise: "P3", Title: "read " + path, Held: true, Saw: "nothing there"}
		if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
			r.Held, r.Saw = false, fmt.Sprintf("%d entries", len(entries))
		}
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			r.Held, r.Saw = false, fmt.Sprintf("%d bytes", len(b))
		}
		return r
	}
}

// processProbe tries to read the memory and the environment of every process
// but its own family.
func processProbe(context.Context) probeResult {
	r := probeResult{Promise: "P3", Title: "memory and environment of other processes", Held: true}
	own := strconv.Itoa(os.Getpid())
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		r.Held, r.Saw = false, err.Error()
		return r
	}
	for _, p := range paths {
		dir := filepath.Dir(p)
		name, err := os.ReadFile(p)
		if err != nil || filepath.Base(dir) == own || !strings.HasPrefix(string(name), "sallyport") {
			continue
		}
		for _, f := range []string{"mem", "environ", "maps"} {
			if h, err := os.Open(filepath.Join(dir, f)); err == nil {
				b := make([]byte, 1)
				n, _ := h.Read(b)
				_ = h.Close()
				if n > 0 {
					r.Held, r.Saw = false, filepath.Join(dir, f)+" can be read"
				}
			}
		}
	}
	if r.Held {
		r.Saw = fmt.Sprintf("%d processes in sight, none of the gateway's can be read", len(paths))
	}
	return r
}

// socketProbe connects to every unix socket that the kernel shows.
func socketProbe(ctx context.Context) probeResult {
	r := probeResult{Promise: "P3", Title: "unix sockets of the host", Held: true, Saw: "none answers"}
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		r.Saw = "none in sight"
		return r
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", f[7]); err == nil {
			_ = c.Close()
			r.Held, r.Saw = false, f[7]+" answers"
		}
	}
	return r
}
