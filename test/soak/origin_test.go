//go:build linux

package soak_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sallyport/test/lab"
)

// port is where the origin of the soak listens: unlike the lab's, it keeps
// nothing of what it is sent.
const port = 7443

// serveOrigin serves all names below soak.test until the test ends.
func serveOrigin(t *testing.T, secret *rotated) {
	t.Helper()
	l, err := world.lab.Net.Listen("tcp", net.JoinHostPort(lab.Origin, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/secret", func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); !secret.was(got) {
			http.Error(w, fmt.Sprintf("not a value of these seconds: %.6s…", strings.TrimPrefix(got, "Bearer "+valuePrefix)), http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "you sent %s\n", r.Header.Get("Authorization"))
	})
	mux.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	})
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, download)) }) // the client counts
	mux.HandleFunc("/events", serveEvents)
	mux.HandleFunc("/socket", serveSocket)
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "not all")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	})
	server := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{GetCertificate: certificates(world.lab.Origins.CA), NextProtos: []string{"h2", "http/1.1"}}}
	go func() { _ = server.ServeTLS(l, "", "") }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
}

// certificates makes one leaf for each name that is asked for.
func certificates(ca *lab.Authority) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	made := map[string]*tls.Certificate{}
	return func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if c := made[h.ServerName]; c != nil {
			return c, nil
		}
		c, err := ca.Leaf(h.ServerName, nil)
		made[h.ServerName] = c
		return c, err
	}
}

// serveEvents sends five events.
func serveEvents(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 5 {
		fmt.Fprintf(w, "data: %d\n\n", i)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// serveSocket echoes messages.
func serveSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, b) != nil {
			return
		}
	}
}

// serveFaults serves upstreams that fail: one that hangs up at once and one
// that speaks another protocol.
func serveFaults(t *testing.T) {
	world.lab.Peer(t, net.JoinHostPort(lab.Origin, "7001"), func(_ *lab.Peer, c *net.TCPConn) { _ = c.SetLinger(0) })
	world.lab.Peer(t, net.JoinHostPort(lab.Origin, "7002"), func(_ *lab.Peer, c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 not TLS\r\n") // the client may have gone
	})
}
