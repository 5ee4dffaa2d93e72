//go:build linux

package secrets_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sallyport/test/lab"
)

// teller is an origin that tells everybody who listens what credential it was
// sent, as it comes.
type teller struct {
	mu        sync.Mutex
	listeners []chan string
}

func (o *teller) listen() chan string {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := make(chan string, 1000)
	o.listeners = append(o.listeners, c)
	return c
}

func (o *teller) tell(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.listeners {
		c <- text
	}
}

// ServeHTTP streams events on /events and messages on /messages.
func (o *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/events":
		c := o.listen()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: begun\n\n")
		for control := http.NewResponseController(w); control.Flush() == nil; {
			select {
			case text := <-c:
				fmt.Fprintf(w, "data: saw %s.\n\n", text)
			case <-r.Context().Done():
				return
			}
		}
	case "/messages":
		c := o.listen()
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		go func() {
			for text := range c {
				if ws.Write(r.Context(), websocket.MessageText, []byte("saw "+text+".")) != nil {
					return
				}
			}
		}()
		for {
			_, b, err := ws.Read(r.Context())
			if err != nil {
				return
			}
			c <- "message " + string(b)
		}
	default:
		o.tell(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		_, _ = io.WriteString(w, "ok")
	}
}

// TestRotationUnderOpenStreams: a stream of events and a WebSocket that were
// open when a value was replaced show neither the old value nor the new one,
// and the new one does not leave on them.
func TestRotationUnderOpenStreams(t *testing.T) {
	const old, fresh = "REAL-old-31f6c0b7d2", "REAL-new-5e1a9403cc"
	const host = "open.mask.test"
	s, path := runOfAFile(t, old)
	t.Cleanup(func() { s.search(t, old); s.search(t, fresh) })
	origin(host).SetHandler(&teller{})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	lines := make(chan string, 1000)
	listen := func(path string) {
		req := lab.NewRequest(t, "GET", "https://"+host+path, "", "Authorization: Bearer $API_KEY")
		resp, err := s.Client(t, false).Do(req.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		go func() {
			for in := bufio.NewScanner(resp.Body); in.Scan(); {
				lines <- in.Text()
			}
		}()
	}
	listen("/events")
	ws, _, err := websocket.Dial(ctx, "wss://"+host+"/messages", &websocket.DialOptions{HTTPClient: s.Client(t, false),
		HTTPHeader: http.Header{"Authorization": {"Bearer $API_KEY"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	if err := ws.Write(ctx, websocket.MessageText, []byte("begun")); err != nil {
		t.Fatal(err)
	}
	messages := make(chan string, 1000)
	go func() {
		defer close(messages)
		for {
			_, b, err := ws.Read(ctx)
			if err != nil {
				return
			}
			messages <- string(b)
		}
	}()
	await := func(from chan string, want string) {
		t.Helper()
		for {
			select {
			case got := <-from:
				s.keep(got)
				if strings.Contains(got, want) {
					return
				}
				if got == "" {
					continue
				}
			case <-ctx.Done():
				t.Fatalf("%q does not come", want)
			}
		}
	}
	await(lines, "begun")
	await(messages, "begun")
	next := filepath.Join(filepath.Dir(path), world.lab.Unique("next"))
	if err := os.WriteFile(next, []byte(fresh+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		passed(t, s.get(t, "https://"+host+"/", "Authorization: Bearer $API_KEY"))
		got := header("Authorization")(last(t, host))
		covered := "saw " + strings.Repeat("*", len(strings.TrimPrefix(got, "Bearer "))) + "."
		await(lines, covered) // the first that was told
		await(messages, covered)
		if got == "Bearer "+fresh {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new value is not used")
		}
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte("it is "+fresh)); err != nil {
		t.Fatal(err)
	}
	for got := range messages { // until it is cut
		s.keep(got)
		if strings.Contains(got, "it is") {
			t.Errorf("the new value left in a message, and came back as %q", got)
		}
	}
}
