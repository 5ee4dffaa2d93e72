//go:build linux

package lab

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Origins are the HTTP servers of the net: every name below .test, each with
// its own log, on the ports below. Names need no declaration.
type Origins struct {
	CA     *Authority // trusted by the gateway alone
	mu     sync.Mutex
	hosts  map[string]*Vhost
	server *http.Server
	grpc   http.Handler
	conns  chan net.Conn
	done   chan struct{}
	ports  []net.Listener
}

// Ports on which the origins serve TLS and plain HTTP.
func tlsPorts() []int { return []int{443, 8443} }

func plainPorts() []int { return []int{80, 8080} }

func newOrigins(n *Namespace) (*Origins, error) {
	ca, err := NewAuthority("Origins of the lab")
	if err != nil {
		return nil, err
	}
	o := &Origins{CA: ca, grpc: newGRPC(), hosts: map[string]*Vhost{}, conns: make(chan net.Conn), done: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	o.server = &http.Server{Handler: http.HandlerFunc(o.serve), Protocols: &protocols, ErrorLog: quiet()}
	go func() { _ = o.server.Serve(o) }() // ends with close
	for _, ip := range []string{Origin, Origin6, "8.8.8.8"} {
		for _, p := range append(tlsPorts(), plainPorts()...) {
			l, err := n.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(p)))
			if err != nil {
				return nil, err
			}
			o.ports = append(o.ports, l)
			go o.accept(l, p == 443 || p == 8443)
		}
	}
	return o, nil
}

// Listen listens in the namespace.
func (n *Namespace) Listen(network, address string) (l net.Listener, err error) {
	err = n.Do(func() error {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// Accept, Close and Addr make the connections that have a name a listener.
func (o *Origins) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (o *Origins) Close() error { return nil }

// Addr is of no meaning.
func (o *Origins) Addr() net.Addr { return &net.TCPAddr{} }

func (o *Origins) close() {
	for _, l := range o.ports {
		_ = l.Close()
	}
	close(o.done)
	_ = o.server.Close()
}

func (o *Origins) accept(l net.Listener, secure bool) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if secure {
			go o.open(c)
		} else {
			go o.hand(&originConn{Conn: c, origins: o})
		}
	}
}

func (o *Origins) hand(c net.Conn) {
	select {
	case o.conns <- c:
	case <-o.done:
		_ = c.Close()
	}
}

// open completes the handshake of one connection and gives it to its host.
func (o *Origins) open(c net.Conn) {
	var v *Vhost
	t := tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if h.ServerName == "" {
			return nil, errors.New("no server name")
		}
		v = o.Host(h.ServerName)
		return v.config()
	}})
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	err := t.Handshake()
	_ = c.SetDeadline(time.Time{})
	if err != nil {
		if v != nil {
			v.note(func() { v.failures = append(v.failures, err.Error()) })
		}
		_ = c.Close()
		return
	}
	oc := &originConn{Conn: t, origins: o, host: v}
	script, stream := v.take()
	if script != nil {
		defer t.Close()
		script(oc, stream)
		return
	}
	o.hand(oc)
}

// Host returns the host of a name.
func (o *Origins) Host(name string) *Vhost {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.hosts[name]
	if v == nil {
		v = &Vhost{Name: name, origins: o, protocols: []string{"h2", "http/1.1"}}
		o.hosts[name] = v
	}
	return v
}

// originConn records what arrives for a host. On a plain connection the host
// is known from its first request.
type originConn struct {
	net.Conn
	origins *Origins
	mu      sync.Mutex
	host    *Vhost
	early   []byte // before the host was known
}

// Read records what it reads.
func (c *originConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.host == nil {
		c.early = append(c.early, p[:n]...)
		if name, ok := hostIn(c.early); ok {
			c.host = c.origins.Host(name)
			c.host.record(c.early)
		}
		return n, err
	}
	c.host.record(p[:n])
	return n, err
}

// CloseWrite half-closes.
func (c *originConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// hostIn finds the Host field of a head that is whole.
func hostIn(b []byte) (string, bool) {
	head, _, whole := strings.Cut(string(b), "\r\n\r\n")
	if !whole {
		return "", false
	}
	for line := range strings.SplitSeq(head, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "host") {
			value = strings.TrimSpace(value)
			if h, _, err := net.SplitHostPort(value); err == nil {
				value = h
			}
			return value, true
		}
	}
	return "none.invalid", true
}

// Reset makes the end of the connection a reset.
func (c *originConn) Reset() {
	inner := c.Conn
	if t, ok := inner.(*tls.Conn); ok {
		inner = t.NetConn()
	}
	if t, ok := inner.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
		_ = t.Close()
	}
}
