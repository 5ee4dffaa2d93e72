//go:build linux

package secrets_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"sallyport/test/lab"
)

const crossPolicy = `
secret "API_KEY" {
  hosts = ["*.cross.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  allow "*.cross.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`

// TestCrossNever: two sandboxes that ask for the same name have values of
// their own, and under load neither is sent for the other, nor comes back.
// The same in process, 100 000 times, is TestCrossUnderLoad of package inject.
func TestCrossNever(t *testing.T) {
	const host, rounds, workers = "both.cross.test", 40, 4
	values := []string{"REAL-first-5be1c09d77", "REAL-second-90ac14ef3b"}
	var all sync.WaitGroup
	for i, value := range values {
		s := start(t, crossPolicy, value)
		for w := range workers {
			c := s.Client(t, w%2 == 1)
			all.Go(func() {
				for n := range rounds {
					req := lab.NewRequest(t, "GET", fmt.Sprintf("https://%s/%d", host, i), "", "Authorization: Bearer $API_KEY")
					a, err := lab.Try(c, req)
					if err != nil || a.Status != 200 {
						t.Errorf("sandbox %d, request %d: %v %d", i, n, err, a.Status)
						return
					}
					s.keep(a.Body)
					if strings.Contains(a.Body, values[1-i]) {
						t.Errorf("sandbox %d received the value of the other", i)
					}
				}
			})
		}
	}
	all.Wait()
	count := map[string]int{}
	for _, q := range origin(host).Requests() {
		want := "Bearer " + values[strings.TrimPrefix(q.Target, "/")[0]-'0']
		if got := header("Authorization")(q); got != want {
			t.Errorf("%s was sent with %q", q.Target, got)
		}
		count[q.Target]++
	}
	if count["/0"] != rounds*workers || count["/1"] != rounds*workers {
		t.Errorf("the origin saw %v", count)
	}
}
