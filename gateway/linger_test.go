package gateway

import (
	"fmt"
	"testing"
	"time"

	"sallyport/audit"
)

// TestH121HalfCloseBehindTheAnswer: a client that closes its side within TLS
// when the answer has been sent, and is not read, gets the whole of it too.
func TestH121HalfCloseBehindTheAnswer(t *testing.T) {
	const size = 300_000
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	c := l.rawTLS(t, "api.test", o.port)
	say(t, c, fmt.Sprintf("GET /down?n=%d HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n", size))
	l.await(t, "end of the request", func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd })
	time.Sleep(100 * time.Millisecond) // for the gateway to close
	must(t, c.CloseWrite())
	if _, b, err := body(readResponse(t, c), nil); err != nil || len(b) != size {
		t.Errorf("%d bytes of %d, %v", len(b), size, err)
	}
}

// TestStopDoesNotWaitForWhoHasRead: an idle client that has read all that it was
// answered has nothing to lose when the gateway stops.
func TestStopDoesNotWaitForWhoHasRead(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	c := l.rawTLS(t, "api.test", o.port, "http/1.1")
	fmt.Fprintf(c, "GET /down?n=100000&cl=1 HTTP/1.1\r\nHost: api.test:%d\r\n\r\n", o.port)
	if _, b, err := body(readResponse(t, c), nil); err != nil || len(b) != 100000 {
		t.Fatal(len(b), err)
	}
	l.await(t, "end of the request", func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd })
	time.Sleep(100 * time.Millisecond) // until the client's kernel has said so
	l.stop()
	ends := l.events(func(e *audit.Event) bool { return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd })
	if len(ends) != 1 {
		t.Fatalf("the connection has %d ends on record", len(ends))
	}
	if ends[0].Verdict != "" || ends[0].Reason != "" {
		t.Errorf("the end on record says %q %q", ends[0].Verdict, ends[0].Reason)
	}
}
