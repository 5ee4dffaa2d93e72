package gateway

import (
	"testing"
	"time"

	"sallyport/audit"
)

// TestAnswerBeforeEnd: a whole answer is with the client before its end is
// recorded, which nothing waits for.
func TestAnswerBeforeEnd(t *testing.T) {
	l := newLab(t)
	ask := l.requests(t)
	had, waited := make(chan struct{}), make(chan bool, 1)
	l.recorder.failWhen(func(e *audit.Event) error {
		if e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd {
			select {
			case <-had:
				waited <- false
			case <-time.After(5 * time.Second):
				waited <- true
			}
		}
		return nil
	})
	ask()
	close(had)
	if <-waited {
		t.Error("the answer waits for the record of its end")
	}
}
