package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// notifierMain puts notices into a spool, says the ID of each on standard
// output once it is taken, and delivers them.
func notifierMain(path, url string) int {
	state, err := OpenState(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client := NewClient(nil)
	sink := sinkFunc(func(ctx context.Context, a Alert) error {
		body, err := json.Marshal(a)
		if err != nil {
			return err
		}
		_, err = Post(ctx, client, url, nil, body)
		return err
	})
	s, err := NewSpool(SpoolOptions{Name: "ops", Sink: sink, State: state, Log: &memory{}, Limit: 1 << 20, Timeout: time.Second, RetryFirst: time.Millisecond, RetryMost: 2 * time.Millisecond})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go s.Run(context.Background())
	for i := 0; ; i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		if err := s.Put(Alert{ID: id}); err != nil {
			return 1
		}
		if _, err := os.Stdout.WriteString(id + "\n"); err != nil {
			return 1
		}
	}
}

// flaky is a receiver that fails in every way, and keeps what it accepted.
type flaky struct {
	mu      sync.Mutex
	got     map[string]int
	healthy bool
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a Alert
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || json.Unmarshal(body, &a) != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if !f.healthy {
		switch rand.IntN(4) {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case 1:
			panic(http.ErrAbortHandler) // before it is kept
		case 2:
			f.got[a.ID]++
			panic(http.ErrAbortHandler) // after it is kept
		}
	}
	f.got[a.ID]++
}

// TestSpoolDeliversAtLeastOnceThroughKills kills the sender at random instants
// while the receiver fails at random.
func TestSpoolDeliversAtLeastOnceThroughKills(t *testing.T) {
	f := &flaky{got: map[string]int{}}
	server := httptest.NewServer(f)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "state.db")
	var taken []string
	for range 15 {
		taken = append(taken, killNotifier(t, path, server.URL)...)
	}
	f.mu.Lock()
	f.healthy = true
	f.mu.Unlock()
	state, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	client := NewClient(nil)
	s, err := NewSpool(SpoolOptions{Name: "ops", State: state, Log: &memory{}, Sink: sinkFunc(func(ctx context.Context, a Alert) error {
		body, _ := json.Marshal(a)
		_, err := Post(ctx, client, server.URL, nil, body)
		return err
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	eventually(t, "delivery of the rest", func() bool { return s.Waiting() == 0 })
	cancel()
	<-done
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range taken {
		if f.got[id] == 0 {
			t.Errorf("%s was taken and never delivered", id)
		}
	}
	if len(taken) < 15 {
		t.Errorf("only %d notices taken", len(taken))
	}
}

func killNotifier(t *testing.T, path, url string) []string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asNotifier+"="+path, receiverURL+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var list []string
	s := bufio.NewScanner(out)
	for s.Scan() {
		if len(list) == 0 {
			time.AfterFunc(rand.N(150*time.Millisecond), func() { cmd.Process.Kill() })
		}
		list = append(list, s.Text())
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() == 1 {
		t.Fatalf("the sender ended by itself: %v", err)
	}
	return list
}
