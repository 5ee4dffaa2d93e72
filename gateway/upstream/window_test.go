package upstream

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// far is a relay to an origin. While it is stopped, what the origin sends is on
// its way, as over a path that takes longer than any window lasts.
type far struct {
	port uint16
	held atomic.Int64 // bytes that are on the way from the origin

	mu   sync.Mutex
	free *sync.Cond
	hold bool
}

func newFar(t *testing.T, o *origin) *far {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &far{port: uint16(ln.Addr().(*net.TCPAddr).Port)}
	f.free = sync.NewCond(&f.mu)
	var wg sync.WaitGroup
	t.Cleanup(func() { f.let(); ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			origin, err := net.Dial("tcp", o.Listener.Addr().String())
			if err != nil {
				near.Close()
				return
			}
			wg.Go(func() { io.Copy(origin, near); origin.Close() })
			wg.Go(func() { f.carry(near, origin); near.Close() })
		}
	})
	return f
}

// carry takes all that the origin sends at once, and delivers it in its order.
func (f *far) carry(near, origin net.Conn) {
	way := make(chan []byte, 1<<16)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(way)
	wg.Go(func() {
		for b := range way {
			f.mu.Lock()
			for f.hold {
				f.free.Wait()
			}
			f.mu.Unlock()
			f.held.Add(-int64(len(b)))
			near.Write(b)
		}
	})
	for {
		b := make([]byte, 16<<10)
		n, err := origin.Read(b)
		f.held.Add(int64(n))
		way <- b[:n]
		if err != nil {
			return
		}
	}
}

func (f *far) stop() {
	f.mu.Lock()
	f.hold = true
	f.mu.Unlock()
}

func (f *far) let() {
	f.mu.Lock()
	f.hold = false
	f.mu.Unlock()
	f.free.Broadcast()
}

// reaches waits until a count has come to want, and a moment more.
func reaches(t *testing.T, what string, count func() int64, want int64) int64 {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); count() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: %d, want %d", what, count(), want)
		}
	}
	time.Sleep(100 * time.Millisecond) // for what would be too much
	return count()
}

// framing is what frames and records add to a window, at most: a quarter.
func framing(window int64) int64 { return window + window/4 }

// TestDownloadFromFarAway: of a download over HTTP/2 a whole wide window is on
// its way at a time, and no more.
func TestDownloadFromFarAway(t *testing.T) {
	const size = 3 * wideWindow
	begin := make(chan struct{})
	o := newOrigin(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-begin
		_, _ = w.Write(make([]byte, size)) // what is missing is seen where it is read
	})
	f := newFar(t, o)
	u := newUpstream(t, Options{Roots: o.roots})
	to := o.target()
	to.Port = f.port
	resp, info, err := send(t, u, to, "https", "GET", nil, speaksHTTP2)
	if err != nil || info.ALPN != "h2" {
		t.Fatalf("%+v, %v", info, err)
	}
	defer resp.Body.Close()
	f.stop()
	close(begin)
	if got := reaches(t, "bytes on their way", f.held.Load, wideWindow); got > framing(wideWindow) {
		t.Errorf("%d bytes are on their way, want %d", got, wideWindow)
	}
	f.let()
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes of %d came: %v", n, size, err)
	}
}

// TestWindowsAreBounded: what a sandbox does not read of many answers is
// bounded, stops no other, and is given back.
func TestWindowsAreBounded(t *testing.T) {
	const more = 8
	var sent atomic.Int64
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.Header.Get("X-Size"))
		for b := make([]byte, 16<<10); n > 0; n -= len(b) {
			if _, err := w.Write(b[:min(n, len(b))]); err != nil {
				return
			}
			sent.Add(int64(len(b)))
		}
	})
	u := newUpstream(t, Options{Roots: o.roots})
	get := func(size int) *http.Response {
		t.Helper()
		resp, _, err := send(t, u, o.target(), "https", "GET", nil, func(r *http.Request) {
			speaksHTTP2(r)
			r.Header.Set("X-Size", strconv.Itoa(size))
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var stalled []*http.Response
	for range maxWide + more {
		stalled = append(stalled, get(2*wideWindow))
	}
	const want = maxWide*wideWindow + more*narrowWindow
	if got := reaches(t, "bytes sent", sent.Load, want); got > framing(want) {
		t.Errorf("%d bytes are taken in, want %d", got, want)
	}
	for range 3 {
		resp := get(4 * narrowWindow)
		if n, err := io.Copy(io.Discard, resp.Body); n != 4*narrowWindow || err != nil {
			t.Errorf("another has %d bytes, %v", n, err)
		}
		resp.Body.Close()
	}
	for _, r := range stalled {
		r.Body.Close()
		r.Body.Close() // once more is as once
	}
	if n := u.Transport("s1").wide.Load(); n != 0 {
		t.Errorf("%d windows are wide, and none is used", n)
	}
}
