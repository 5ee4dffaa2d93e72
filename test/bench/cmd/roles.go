//go:build linux

package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"sallyport/test/bench/load"
	"sallyport/test/bench/origin"
	"sallyport/test/bench/peers"
)

// roles are what this program is when it starts itself.
func roles() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"client":  client,
		"run":     func([]string) error { return load.Serve(os.Stdin, os.Stdout) }, // in a sandbox whose settings are not ours
		"origin":  serveOrigin,
		"relay":   relay,
		"goproxy": plainProxy,
		"nethttp": bareProxy,
		"spaces":  spaces,
	}
}

func client([]string) error {
	if err := peers.Ports(); err != nil {
		return err
	}
	return load.Serve(os.Stdin, os.Stdout)
}

// serveOrigin serves once its addresses are there, which it is told.
func serveOrigin(args []string) error {
	if len(args) != 1 {
		return errors.New("origin DIR")
	}
	if _, err := os.Stdin.Read(make([]byte, 8)); err != nil {
		return err
	}
	return origin.Serve(args[0])
}

// relay copies between each connection and the origin, which Go does with
// splice(2).
func relay(args []string) error {
	if len(args) != 2 {
		return errors.New("relay LISTEN TO")
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			up, err := net.Dial("tcp", args[1])
			if err != nil {
				_ = c.Close() // that says it
				return
			}
			go half(up, c)
			half(c, up)
		}()
	}
}

// half copies one direction, and passes its end on. The sockets are closed
// when both directions have ended.
func half(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if c, ok := to.(*net.TCPConn); ok && err == nil {
		err = c.CloseWrite()
	}
	if err != nil {
		_, _ = to.Close(), from.Close() // one of them has gone
	}
}

// leaves keeps certificates by name.
type leaves struct {
	mu    sync.RWMutex
	known map[string]*tls.Certificate
}

// Fetch is goproxy.CertStorage.
func (l *leaves) Fetch(host string, make func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	l.mu.RLock()
	c := l.known[host]
	l.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := make()
	if err == nil {
		l.mu.Lock()
		l.known[host] = c
		l.mu.Unlock()
	}
	return c, err
}

// plainProxy is goproxy as its documentation has it; cached keeps leaves and
// as many idle connections as are needed, h2 offers HTTP/2.
func plainProxy(args []string) error {
	if len(args) < 2 {
		return errors.New("goproxy DIR LISTEN [cached] [h2]")
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(args[0], "proxy.crt"), filepath.Join(args[0], "proxy.key"))
	if err != nil {
		return err
	}
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0)
	p.Tr.TLSClientConfig = &tls.Config{}
	if slices.Contains(args[2:], "cached") {
		p.CertStore = &leaves{known: map[string]*tls.Certificate{}}
		p.Tr.MaxIdleConnsPerHost = 512
		p.Tr.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(4096)
	}
	p.AllowHTTP2 = slices.Contains(args[2:], "h2")
	action := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&pair)}
	p.OnRequest().HandleConnect(goproxy.FuncHttpsHandler(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) { return action, host }))
	s := &http.Server{Addr: args[1], Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	return s.ListenAndServe()
}

// spaces makes network namespaces, says their paths, and holds them.
func spaces(args []string) error {
	if len(args) != 1 {
		return errors.New("spaces N")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	var paths []string
	for range n {
		space, err := netns.New()
		if err != nil {
			return err
		}
		paths = append(paths, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(space)))
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetUp(lo), peers.Ports()); err != nil {
			return err
		}
	}
	if err := netns.Set(home); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(paths); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until nobody needs them
	return nil
}
