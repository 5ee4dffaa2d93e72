//go:build linux

package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeEngine answers as an engine does.
type fakeEngine struct {
	socket string
	mu     sync.Mutex
	lists  int
	list   string
	events chan string // lines; "" ends the stream
}

func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	f := &fakeEngine{socket: filepath.Join(t.TempDir(), "engine.sock"), list: "[]", events: make(chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containers/json", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lists++
		fmt.Fprint(w, f.list)
	})
	mux.HandleFunc("GET /events", f.stream)
	mux.HandleFunc("GET /containers/{id}/json", func(w http.ResponseWriter, r *http.Request) {
		switch id := r.PathValue("id"); id {
		case "huge":
			_, _ = w.Write(make([]byte, engineAnswerMax+2)) // the client ends it
		case "broken":
			fmt.Fprint(w, "{")
		case "busy":
			http.Error(w, `{"message":"no"}`, http.StatusInternalServerError)
		case "going":
			http.Error(w, `{"message":"container going does not exist in database: no such container"}`, http.StatusInternalServerError)
		case "c1":
			fmt.Fprint(w, `{"Id":"c1","Name":"/job","Image":"sha256:i1","State":{"Status":"running","Running":true,"Pid":42},
				"Config":{"Image":"app:1","Labels":{"sallyport.sandbox":"ci","sallyport.job":"7","vendor":"x"}},"HostConfig":{"NetworkMode":"none","Dns":["192.0.2.1"]}}`)
		default:
			http.Error(w, `{"message":"no such container"}`, http.StatusNotFound)
		}
	})
	mux.HandleFunc("GET /images/{id}/json", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"Config":{"Labels":{"vendor":"x"}}}`)
	})
	f.serve(t, mux)
	return f
}

func (f *fakeEngine) serve(t *testing.T, h http.Handler) {
	t.Helper()
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = s.Close() })
}

func (f *fakeEngine) stream(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case line := <-f.events:
			if line == "" {
				return
			}
			fmt.Fprintln(w, line)
			_ = http.NewResponseController(w).Flush()
			if !json.Valid([]byte(line)) {
				<-r.Context().Done() // the client ends it, and what comes is for its next one
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func TestEngineContainer(t *testing.T) {
	e := NewEngine(newFakeEngine(t).socket)
	defer e.Close()
	got, err := e.Container(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	want := Container{ID: "c1", Name: "job", Image: "app:1", NetworkMode: "none", Running: true, PID: 42, Resolvers: []string{"192.0.2.1"},
		Labels: map[string]string{"sallyport.sandbox": "ci", "sallyport.job": "7"}, ImageLabels: map[string]string{"vendor": "x"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for id, part := range map[string]string{"huge": "larger than", "broken": "unexpected end", "busy": "500", "none": "no such container", "../images/x": "no such container"} {
		if _, err := e.Container(t.Context(), id); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("container %s: %v", id, err)
		}
	}
	for _, id := range []string{"none", "going"} {
		if _, err := e.Container(t.Context(), id); !errors.Is(err, ErrNoContainer) {
			t.Errorf("container %s: not ErrNoContainer: %v", id, err)
		}
	}
}

// watched is what a watch has told.
type watched struct {
	mu   sync.Mutex
	said []string
	more chan struct{}
}

func (w *watched) say(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, s)
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watched) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		for i, s := range w.said {
			if s == want {
				w.said = w.said[i+1:]
				w.mu.Unlock()
				return
			}
		}
		w.mu.Unlock()
		select {
		case <-w.more:
		case <-deadline:
			t.Fatalf("not told %q: %q", want, w.said)
		}
	}
}

func TestEngineWatch(t *testing.T) {
	f := newFakeEngine(t)
	f.list = `[{"Id":"c1"},{"Id":"c2"}]`
	e := NewEngine(f.socket)
	defer e.Close()
	again := make(chan struct{})
	w := &watched{more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Watch(ctx, EngineWatch{Again: again,
			Listed:  func(ids []string) { w.say("listed " + strings.Join(ids, " ")) },
			Changed: func(id string) { w.say("changed " + id) },
			Lost:    func(err error, _ time.Duration) { w.say("lost") },
		})
	}()
	w.await(t, "listed c1 c2")
	f.events <- `{"Type":"container","Action":"exec_create: sh","Actor":{"ID":"c9"}}`
	f.events <- `{"Type":"container","Action":"start","Actor":{"ID":"c8","Attributes":{"name":"another's"}}}`
	f.events <- `{"Type":"container","Action":"start","Actor":{"ID":"c3","Attributes":{"sallyport.sandbox":""}}}`
	w.await(t, "changed c3")
	f.events <- `{"status":"died","Type":"container","Action":"died","Actor":{"ID":"c3","Attributes":{"sallyport.sandbox":"ci"}}}` // Podman
	w.await(t, "changed c3")
	again <- struct{}{}
	w.await(t, "listed c1 c2")
	f.events <- "no JSON"
	w.await(t, "lost")
	w.await(t, "listed c1 c2")
	f.events <- ""
	w.await(t, "lost")
	w.await(t, "listed c1 c2")
	cancel()
	<-done
}

// TestEngineAbsent: an engine that is not there is waited for, longer each
// time.
func TestEngineAbsent(t *testing.T) {
	e := NewEngine(filepath.Join(t.TempDir(), "none.sock"))
	ctx, cancel := context.WithCancel(t.Context())
	var waits []time.Duration
	e.Watch(ctx, EngineWatch{
		Listed:  func([]string) { t.Error("listed") },
		Changed: func(string) { t.Error("changed") },
		Lost: func(_ error, again time.Duration) {
			if waits = append(waits, again); len(waits) == 4 {
				cancel()
			}
		},
	})
	want := []time.Duration{engineWaitMin, 2 * engineWaitMin, 4 * engineWaitMin, 8 * engineWaitMin}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
}

// FuzzEngineEvent: whatever an engine says, an event names a container or
// nothing.
func FuzzEngineEvent(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"Action":"start","Actor":{"ID":"c1"}}`,
		`{"Action":"start","Actor":{"ID":"c1","Attributes":{"sallyport.sandbox":"ci"}}}`, `{"Action":"start","Actor":{"ID":"c1","Attributes":["sallyport.sandbox"]}}`, `{"Action":"die"}`, `{"Action":["start"]}`, `{"Actor":{"ID":1}}`, "null", "[]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		id, ok, err := readEvent(line)
		if ok && (id == "" || err != nil) || !ok && id != "" {
			t.Errorf("%q: %q %v %v", line, id, ok, err)
		}
		if ok && !json.Valid(line) {
			t.Errorf("%q is no JSON and was taken", line)
		}
	})
}
