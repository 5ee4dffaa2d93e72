package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/gateway/inject"
	"sallyport/policy"
)

// TestRequestLimitBeforeBody: a request whose body is looked at is taken from
// what the sandbox may use, once, whatever the body turns out to ask for.
func TestRequestLimitBeforeBody(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.JSONRPC = &policy.JSONRPC{Methods: []string{"ping"}} })
	l.limits.RequestsPerMinute = 4
	l.load()
	client := l.client(t, false)
	for n, tt := range []struct {
		method string
		status int
	}{{"pong", http.StatusForbidden}, {"ping", http.StatusOK}, {"pong", http.StatusForbidden}, {"ping", http.StatusOK},
		{"pong", http.StatusTooManyRequests}, {"ping", http.StatusTooManyRequests}} {
		resp, got, err := body(client.Post(o.address("api.test/echo"), "application/json", strings.NewReader(`{"method":"`+tt.method+`"}`)))
		must(t, err)
		if resp.StatusCode != tt.status {
			t.Errorf("request %d, %s: %d %s, want %d", n, tt.method, resp.StatusCode, got, tt.status)
		}
	}
}

// TestHeldBodiesAreBounded: bodies that are decided by and that their clients
// do not end are held up to a bound, which what has ended gives back.
func TestHeldBodiesAreBounded(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) {
		r.JSONRPC = &policy.JSONRPC{Methods: []string{"ping"}, Max: policy.MostInspect}
	})
	l.load()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := l.client(t, true)
	ping := func() int {
		resp, _, err := body(client.Post(o.address("api.test/echo"), "application/json", strings.NewReader(`{"method":"ping"}`)))
		must(t, err)
		return resp.StatusCode
	}
	answers := make(chan int, 32)
	var wg sync.WaitGroup
	for range cap(answers) {
		unfinished, end := io.Pipe()
		wg.Go(func() {
			_, _ = io.WriteString(end, " ") // a body that is refused is not read
			<-ctx.Done()
			_ = end.Close() // a pipe's never fails
		})
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "POST", o.address("api.test/echo"), unfinished)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			resp, _, err := body(client.Do(req))
			switch {
			case err == nil:
				answers <- resp.StatusCode
			case ctx.Err() == nil: // it would have been answered
				t.Error(err)
				answers <- 0
			}
		})
	}
	const fit = sandboxHolds / (policy.MostInspect + 1)
	for range cap(answers) - fit {
		if code := <-answers; code != http.StatusTooManyRequests {
			t.Errorf("over the bound: %d", code)
		}
	}
	if held := l.g.state(l.sandbox.ID).holds.used.Load(); held != fit*(policy.MostInspect+1) || l.g.holds.used.Load() != held {
		t.Errorf("%d bytes are held, %d by the gateway", held, l.g.holds.used.Load())
	}
	if code := ping(); code != http.StatusOK {
		t.Errorf("a small body beside them: %d", code)
	}
	cancel()
	wg.Wait()
	l.awaitNothingHeld()
	if own, all := l.g.state(l.sandbox.ID).holds.used.Load(), l.g.holds.used.Load(); own != 0 || all != 0 {
		t.Errorf("%d bytes are held by nobody, %d by the gateway's count", own, all)
	}
	if code := ping(); code != http.StatusOK {
		t.Errorf("behind them: %d", code)
	}
}

// TestHolds holds that the gateway's bound is one for all, and that what was
// refused takes nothing.
func TestHolds(t *testing.T) {
	var all holding
	var taken []*hold
	for range gatewayHolds / sandboxHolds {
		var own holding
		h := &hold{}
		if !h.take(&own, &all, sandboxHolds) {
			t.Fatal("a sandbox may not hold what is its own")
		}
		if more := (&hold{}); more.take(&own, &all, 1) || own.used.Load() != sandboxHolds {
			t.Fatalf("a sandbox holds %d bytes", own.used.Load())
		}
		taken = append(taken, h)
	}
	var own holding
	if h := (&hold{}); h.take(&own, &all, 1) || own.used.Load() != 0 || all.used.Load() != gatewayHolds {
		t.Errorf("over the gateway's bound: %d held, %d in all", own.used.Load(), all.used.Load())
	}
	taken[0].keep(10)
	taken[0].keep(20)
	if got := all.used.Load(); got != gatewayHolds-sandboxHolds+10 {
		t.Errorf("%d bytes are held", got)
	}
	for _, h := range append(taken, &hold{}) {
		h.keep(0)
		h.keep(0)
	}
	if got := all.used.Load(); got != 0 {
		t.Errorf("%d bytes are held", got)
	}
}

// TestBodiesHeldForACredential: bodies that are held to put a credential into
// them count with those that are decided by, also while they have not come
// whole.
func TestBodiesHeldForACredential(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	snap := l.snapshot()
	spec := *snap.Policy.Secret(secretName)
	spec.Body = &policy.BodyPlace{Max: 4 << 20, Fields: []string{"key"}}
	snap.Inject = inject.NewTable([]inject.Secret{{Name: secretName, Spec: &spec, Covers: func(h string) bool { return h == "api.test" }}},
		snap.Policy.Sandboxes(), []byte("key"))
	l.g.Swap(snap)
	client := l.client(t, true)
	post := func(ctx context.Context, src io.Reader, length int64) (int, string) {
		req, err := http.NewRequestWithContext(ctx, "POST", o.address("api.test/echo"), src)
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.ContentLength = length
		resp, text, err := body(client.Do(req))
		if err != nil {
			return 0, ""
		}
		return resp.StatusCode, text
	}
	small := `{"key":"$` + secretName + `"}`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const size = 3 << 20
	var wg sync.WaitGroup
	refused := make(chan string, 8)
	for range cap(refused) {
		wg.Go(func() {
			// A byte is missing until the test ends.
			src := io.MultiReader(strings.NewReader(`["`+strings.Repeat("x", size-5)), waits{ctx})
			if code, text := post(ctx, src, size); code == http.StatusTooManyRequests {
				refused <- text
			}
		})
	}
	for range cap(refused) - sandboxHolds/size {
		select {
		case text := <-refused:
			if !strings.Contains(text, "rate_limited") {
				t.Errorf("over the bound: %s", text)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("more bodies are held than the bound lets")
		}
	}
	if held := l.g.holds.used.Load(); held > sandboxHolds || held < size {
		t.Errorf("%d bytes are held", held)
	}
	cancel()
	wg.Wait()
	l.awaitNothingHeld()
	if held := l.g.holds.used.Load(); held != 0 {
		t.Errorf("%d bytes are held by nobody", held)
	}
	if code, text := post(t.Context(), strings.NewReader(small), int64(len(small))); code != http.StatusOK {
		t.Errorf("behind them: %d %s", code, text)
	}
}

// waits is a body that gives nothing until ctx ends.
type waits struct{ ctx context.Context }

func (w waits) Read([]byte) (int, error) {
	<-w.ctx.Done()
	return 0, w.ctx.Err()
}

// awaitNothingHeld waits for the bodies of requests that have ended.
func (l *lab) awaitNothingHeld() {
	for range 1000 { // 10 s
		if l.g.holds.used.Load() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
