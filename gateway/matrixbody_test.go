package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/audit"
)

// earlyAnswer: the origin answers after 10 KiB of a body that has no end, and
// the answer does not wait for the rest, whether it has a body or not.
func (c *column) earlyAnswer(t *testing.T) {
	for _, said := range []string{"", "too-large"} {
		pr, pw := io.Pipe()
		late := time.AfterFunc(20*time.Second, func() { _ = pw.CloseWithError(errors.New("no answer")) })
		go func() { _, _ = io.CopyN(pw, &pattern{}, 32<<10) }()
		r, b, err := body(c.client(t, c.h2).Post(c.url("/early413?say="+said), "text/plain", pr))
		late.Stop()
		_ = pw.Close() // the client has closed its side
		must(t, err)
		if r.StatusCode != http.StatusRequestEntityTooLarge || b != said {
			t.Fatalf("status %d %q", r.StatusCode, b)
		}
	}
}

func (c *column) truncation(t *testing.T) {
	_, b, err := c.get(t, "/trunc")
	if err == nil {
		t.Fatalf("%d bytes and a clean end", len(b))
	}
	e := c.await(t, "end of the truncated answer", func(e *audit.Event) bool {
		return e.Phase == audit.PhaseEnd && e.HTTP != nil && e.HTTP.Path == "/trunc"
	})
	if e.Error == nil || e.Error.Class != "reset" {
		t.Fatalf("error %+v", e.Error)
	}
}

func (c *column) fullDuplex(t *testing.T) {
	pr, pw := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url("/echo"), pr)
	must(t, err)
	go func() { _, _ = io.WriteString(pw, "one\n") }()
	r, err := c.client(t, c.h2).Do(q)
	must(t, err)
	defer r.Body.Close()
	lines := bufio.NewReader(r.Body)
	for i := range 5 {
		s, err := lines.ReadString('\n')
		if err != nil || s == "" {
			t.Fatalf("round %d: %q, %v", i, s, err)
		}
		_, err = fmt.Fprintf(pw, "more %d\n", i)
		must(t, err)
	}
	must(t, pw.Close())
	_, err = io.Copy(io.Discard, lines)
	must(t, err)
}

func (c *column) cancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), pieceWait)
	defer cancel()
	before := len(c.saw())
	go func() {
		for ctx.Err() == nil && len(c.saw()) == before {
			time.Sleep(5 * time.Millisecond)
		}
		cancel() // now that the origin has it
	}()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url("/hang"), nil)
	must(t, err)
	if _, _, err := body(c.client(t, c.h2).Do(q)); err == nil {
		t.Fatal("an answer to a request that hangs")
	}
	select {
	case <-c.origin.cancelled:
	case <-time.After(2 * halfClosedWait):
		t.Fatal("the origin was never told")
	}
}

// big is the size of the bodies that must pass in bounded memory.
const big = 64 << 20

// flat fails when f makes the heap grow by much more than its buffers.
func flat(t *testing.T, f func()) {
	t.Helper()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapInuse))
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	if grown := int64(peak.Load()) - int64(before.HeapInuse); grown > 48<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func (c *column) upload(t *testing.T) {
	flat(t, func() {
		_, b, err := body(c.client(t, c.h2).Post(c.url("/up"), "application/octet-stream", io.NopCloser(io.LimitReader(&pattern{}, big))))
		must(t, err)
		if !strings.HasPrefix(b, strconv.Itoa(big)+" <nil>") {
			t.Fatal(b)
		}
	})
}

func (c *column) download(t *testing.T) {
	flat(t, func() {
		r, err := c.client(t, c.h2).Get(c.url("/down?cl=1&n=" + strconv.Itoa(big)))
		must(t, err)
		defer r.Body.Close()
		n, err := io.Copy(&patternCheck{}, r.Body)
		must(t, err)
		if n != big || r.ContentLength != big {
			t.Fatalf("%d bytes, announced %d", n, r.ContentLength)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
