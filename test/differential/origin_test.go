package differential

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport/certs"
)

// request is one HTTP request as somebody understood it.
type request struct {
	Method, Target, Host, Body string

	partial bool // it broke off
	status  int  // of a refusal by nginx; 0 is none
}

func (r request) String() string {
	s := fmt.Sprintf("%s %q of %q with %q", r.Method, r.Target, r.Host, r.Body)
	if r.partial {
		s += ", broken off"
	}
	if r.status != 0 {
		s += fmt.Sprintf(", refused with %d", r.status)
	}
	return s
}

// tap is what the gateway takes for an origin: it keeps the bytes of each
// connection and passes them on to the real one. With leaves it speaks TLS.
type tap struct {
	port  uint16
	ln    net.Listener
	to    net.Addr
	seen  *understood // of an origin that is met without a tap; nil otherwise
	stop  func()      // of that origin
	mu    sync.Mutex
	conns []*bytes.Buffer // in order of their arrival
	ended sync.WaitGroup
}

func newTap(t testing.TB, to net.Addr, leaves *certs.Leaves) *tap {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &tap{ln: ln, to: to, port: uint16(ln.Addr().(*net.TCPAddr).Port)}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if leaves != nil {
				c = tls.Server(c, &tls.Config{NextProtos: []string{"http/1.1"},
					GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return leaves.Leaf(h.ServerName) }})
			}
			p.ended.Go(func() { p.relay(c) })
		}
	}()
	t.Cleanup(func() { _ = ln.Close() })
	return p
}

type halfCloser interface{ CloseWrite() error }

func (p *tap) relay(c net.Conn) {
	defer c.Close()
	o, err := net.Dial(p.to.Network(), p.to.String())
	if err != nil {
		return
	}
	defer o.Close()
	kept := &bytes.Buffer{}
	p.mu.Lock()
	p.conns = append(p.conns, kept)
	p.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, o)
		_ = c.(halfCloser).CloseWrite()
	})
	_, _ = io.Copy(io.MultiWriter(&kept2{p, kept}, o), c)
	_ = o.(halfCloser).CloseWrite()
	back.Wait()
}

// kept2 writes to a buffer of the tap under its lock.
type kept2 struct {
	p *tap
	b *bytes.Buffer
}

func (k *kept2) Write(b []byte) (int, error) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	return k.b.Write(b)
}

// forwarded returns what arrived, by host. It is called after the gateway's
// end, and waits for that of the connections.
func (p *tap) forwarded(t testing.TB, out map[string][]request) {
	t.Helper()
	if p.seen != nil {
		// What a frame carries is one request for everybody: that the origin
		// understands it is that it was forwarded.
		p.stop()
		maps.Copy(out, p.seen.all())
		return
	}
	_ = p.ln.Close()
	p.ended.Wait()
	for _, c := range p.conns {
		rs, err := parse(c.Bytes())
		if err != nil {
			t.Errorf("the gateway wrote what is no HTTP/1.1: %v\n%q", err, c.Bytes())
		}
		for _, r := range rs {
			out[name(r.Host)] = append(out[name(r.Host)], r)
		}
	}
}

// name is the host that an authority names.
func name(authority string) string {
	host, _, _ := strings.Cut(authority, ":")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// understood is what an origin's server made of what reached it.
type understood struct {
	mu      sync.Mutex
	by      map[string][]request
	serving sync.WaitGroup
}

// after ends a server whose clients have gone, and waits for all that it has
// begun to serve.
func (u *understood) after(s *http.Server, served <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_ = errors.Join(s.Shutdown(ctx), s.Close()) // what it does not end it cuts
	<-served
	u.serving.Wait()
}

func (u *understood) add(r request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.by[name(r.Host)] = append(u.by[name(r.Host)], r)
}

func (u *understood) all() map[string][]request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.by)
}

// http2Origin serves HTTP/2 inside TLS with net/http.
func http2Origin(t testing.TB, leaves *certs.Leaves) (p *tap, stop func() map[string][]request) {
	t.Helper()
	u := &understood{by: map[string][]request{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &http.Server{DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0), Handler: u,
		TLSConfig: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return leaves.Leaf(h.ServerName) }}}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP2(true)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.ServeTLS(ln, "", "") }()
	end := sync.OnceFunc(func() { u.after(s, served) })
	t.Cleanup(end)
	return &tap{port: uint16(ln.Addr().(*net.TCPAddr).Port), ln: ln, seen: u, stop: end}, func() map[string][]request { end(); return u.all() }
}

// ServeHTTP takes note of a request.
func (u *understood) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	u.serving.Add(1)
	defer u.serving.Done()
	b, err := io.ReadAll(r.Body)
	u.add(request{Method: r.Method, Target: r.RequestURI, Host: r.Host, Body: string(b), partial: err != nil})
}

// goOrigin serves with net/http.
func goOrigin(t testing.TB) (address net.Addr, stop func() map[string][]request) {
	t.Helper()
	u := &understood{by: map[string][]request{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &http.Server{DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0), Handler: u}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(ln) }()
	end := sync.OnceFunc(func() { u.after(s, served) })
	t.Cleanup(end)
	return ln.Addr(), func() map[string][]request { end(); return u.all() }
}

const nginxConf = `
daemon off;
master_process off;
pid DIR/pid;
error_log DIR/error.log crit;
worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
	log_format seen '$status\t$request_method\t$request_uri\t$http_host\t$request_body\t$request_completion';
	access_log DIR/seen.log seen;
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	client_body_buffer_size 64k;
	client_body_in_single_buffer on;
	client_max_body_size 0;
	large_client_header_buffers 8 64k;
	keepalive_requests 100000;
	server {
		listen unix:DIR/front;
		location / { proxy_pass http://unix:DIR/sink; }
	}
	server {
		listen unix:DIR/sink;
		access_log off;
		location / { return 200 "ok\n"; }
	}
}
`

// nginxOrigin starts nginx on a socket of its own. What it understood is read
// when it has stopped.
func nginxOrigin(t testing.TB) (address net.Addr, stop func() map[string][]request) {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path = "/usr/sbin/nginx"
	}
	dir, err := os.MkdirTemp("", "nginx") // short: it holds a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	address = &net.UnixAddr{Name: filepath.Join(dir, "front"), Net: "unix"}
	conf := strings.ReplaceAll(nginxConf, "DIR", dir)
	must(t, os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600))
	var said bytes.Buffer
	cmd := exec.Command(path, "-p", dir, "-c", filepath.Join(dir, "conf"), "-e", filepath.Join(dir, "error.log"))
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("nginx: %v; test/deps.sh installs it", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	t.Cleanup(end)
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial(address.Network(), address.String())
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Since(begun) > 20*time.Second {
			end()
			t.Fatalf("nginx does not listen: %s", said.String())
		}
	}
	return address, func() map[string][]request {
		nginxCaughtUp(t, filepath.Join(dir, "sink"))
		end()
		text, err := os.ReadFile(filepath.Join(dir, "seen.log"))
		must(t, err)
		return nginxSaw(t, string(text))
	}
}

// nginxCaughtUp waits for an answer of nginx, which by then has read, and so
// logged, the end of every connection that ended before.
func nginxCaughtUp(t testing.TB, socket string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerTime)) // an error comes again
	_, err = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	must(t, err)
	_, err = io.ReadAll(c)
	must(t, err)
}

// nginxSaw reads nginx's log, in which it escapes what is not printable.
func nginxSaw(t testing.TB, text string) map[string][]request {
	t.Helper()
	out := map[string][]request{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 6 {
			t.Fatalf("line of nginx: %q", line)
		}
		for i := range f {
			if f[i] == "-" {
				f[i] = ""
			}
			v, err := strconv.Unquote(`"` + f[i] + `"`)
			must(t, err)
			f[i] = v
		}
		status, err := strconv.Atoi(f[0])
		must(t, err)
		r := request{Method: f[1], Target: f[2], Host: f[3], Body: f[4]}
		switch {
		case status == 400 && f[5] == "" || status == 408 || status == 499:
			r.partial, r.status = true, status
		case status != http.StatusOK:
			r.status = status
		}
		out[name(r.Host)] = append(out[name(r.Host)], r)
	}
	return out
}
