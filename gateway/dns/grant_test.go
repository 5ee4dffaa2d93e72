package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// TestLeasesShareAWrite: names that are asked for while a write is under way
// are kept by one more, each by an address of its own.
func TestLeasesShareAWrite(t *testing.T) {
	const n = 50
	store := newMemoryStore()
	p := newPool(t, PoolOptions{Store: store, MaxLeases: n})
	before := store.puts
	begun, goOn := make(chan struct{}), make(chan struct{})
	store.fail = func(string) (bool, error) {
		close(begun)
		<-goOn
		store.fail = nil
		return true, nil
	}
	var asking sync.WaitGroup
	asking.Go(func() { lease(t, p, "s1", "first.test", false) })
	<-begun
	l, err := p.of("s1")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	got, refused := map[netip.Addr]string{}, 0
	for i := range n + 1 {
		host := fmt.Sprintf("%d.test", i)
		for range 2 { // each is asked for twice
			asking.Go(func() {
				a, err := p.Lease("s1", host, false)
				mu.Lock()
				defer mu.Unlock()
				switch other := got[a]; {
				case errors.Is(err, ErrPoolExhausted):
					refused++
				case err != nil:
					t.Error(err)
				case other != "" && other != host:
					t.Errorf("%s is %s and %s", a, other, host)
				}
				if err == nil {
					got[a] = host
				}
			})
		}
	}
	waiting := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.wishes)
	}
	for end := time.Now().Add(30 * time.Second); waiting() < 2*(n+1); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d wait", waiting())
		}
	}
	close(goOn)
	asking.Wait()
	if writes := store.puts - before; writes != 2 {
		t.Errorf("%d writes, want 2", writes)
	}
	if len(got) != n-1 || refused != 4 {
		t.Errorf("%d names have a lease and %d questions were refused, want %d and 4", len(got), refused, n-1)
	}
	again := newPool(t, PoolOptions{Store: store, MaxLeases: n})
	for a, host := range got {
		if kept, _ := again.Lookup("s1", a); kept != host {
			t.Errorf("%s is %q after a restart, was %q", a, kept, host)
		}
	}
}

// TestLeasesOfAFailedWriteKeepTheirOffsets: what a write that failed may have
// kept is written again before other names get anything.
func TestLeasesOfAFailedWriteKeepTheirOffsets(t *testing.T) {
	for _, kept := range []bool{false, true} {
		store := newMemoryStore()
		p := newPool(t, PoolOptions{Store: store})
		l, err := p.of("s1")
		if err != nil {
			t.Fatal(err)
		}
		store.fail = func(string) (bool, error) { return kept, errors.New("no space") }
		l.wishes = []*wish{{host: "a.test", size: 100}, {host: "b.test", size: 100}}
		l.granting.Lock()
		p.grantAll(l, "s1")
		l.granting.Unlock()
		store.fail = nil
		lease(t, p, "s1", "c.test", false)
		again := newPool(t, PoolOptions{Store: store})
		for i, want := range []string{"a.test", "b.test", "c.test"} {
			a := p.address(uint32(firstLease+i), false)
			if host, _ := again.Lookup("s1", a); host != want {
				t.Errorf("kept %t: %s is %q, want %q", kept, a, host, want)
			}
		}
	}
}
