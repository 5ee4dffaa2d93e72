package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRestAtTheSameMoment: whenever a wait is ended, in the same moment as a
// request comes, or a piece of one, each request is answered once and in turn.
func TestRestAtTheSameMoment(t *testing.T) {
	for name, within := range map[string]bool{"TLS": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			port, host := l.origin(t).port, "plain.test"
			if within {
				port, host = l.origin(t, "http/1.1").port, "api.test"
			}
			l.allow(host, port)
			l.load()
			var asking sync.WaitGroup
			for k := range 4 {
				c := l.idle(t, port, within)
				asking.Go(func() { askInPieces(t, c, host, k) })
			}
			stop, ended := make(chan struct{}), make(chan int)
			go func() { ended <- l.restAlways(stop) }()
			asking.Wait()
			close(stop)
			if n := <-ended; n == 0 {
				t.Error("no wait was ended")
			}
		})
	}
}

// restAlways ends every wait as soon as it is found, until stop, and returns how
// many it ended.
func (l *lab) restAlways(stop <-chan struct{}) (n int) {
	r := &l.g.front.rests
	for {
		select {
		case <-stop:
			return n
		case <-time.After(50 * time.Microsecond):
		}
		r.mu.Lock()
		for fc := range r.conns {
			if !fc.asleep && fc.guard.Rest(1) {
				n++
			}
		}
		r.mu.Unlock()
	}
}

// askInPieces asks again and again on c, in pieces that k and the turn choose.
func askInPieces(t *testing.T, c net.Conn, host string, k int) {
	answers := bufio.NewReader(c)
	get := "GET /hello HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	long := strings.Repeat("x", 40_000)
	post := fmt.Sprintf("POST /hello HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", host, len(long), long)
	turns := [][]string{{get}, {get + get}, {get[:10], get[10:]}, {"\r\n", get + get[:10], get[10:]}, {post + get}}
	for i := range 100 {
		pieces := turns[(i+k)%len(turns)]
		for _, p := range pieces {
			time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
			if _, err := io.WriteString(c, p); err != nil {
				t.Errorf("turn %d: %v", i, err)
				return
			}
		}
		for range strings.Count(strings.Join(pieces, ""), "HTTP/1.1") {
			a, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Errorf("turn %d: %v", i, err)
				return
			}
			if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK {
				t.Errorf("turn %d: %s, %v", i, a.Status, err)
				return
			}
		}
	}
}
