//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"sync"
	"time"
)

// bareProxy is net/http's server, its ReverseProxy and its Transport with nothing
// between them: no policy, no checks, no record. What is built on net/http costs
// this much before it does anything.
func bareProxy(args []string) error {
	if len(args) != 2 {
		return errors.New("nethttp DIR LISTEN")
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(args[0], "names.crt"), filepath.Join(args[0], "names.key"))
	if err != nil {
		return err
	}
	quiet := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", r.In.Host, r.In.Host
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true,
			TLSClientConfig: &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(4096)}},
		BufferPool: &copyBuffers{}, ErrorLog: quiet,
	}
	s := &http.Server{Addr: args[1], Handler: proxy, ReadHeaderTimeout: time.Minute, ErrorLog: quiet,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	return s.ListenAndServeTLS("", "")
}

// copyBuffers are those that bodies are copied through.
type copyBuffers struct{ free sync.Pool }

type copyBuffer [32 << 10]byte

func (c *copyBuffers) Get() []byte {
	b, ok := c.free.Get().(*copyBuffer)
	if !ok {
		b = new(copyBuffer)
	}
	return b[:]
}

func (c *copyBuffers) Put(b []byte) { c.free.Put((*copyBuffer)(b)) }
