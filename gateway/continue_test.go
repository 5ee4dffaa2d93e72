package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sallyport/audit"
)

// TestContinueAndHints: an upstream may say 100 Continue and other
// informational answers in one breath. The client that sends its body gets
// each of them whole.
func TestContinueAndHints(t *testing.T) {
	const rounds, hints = 300, 3
	l := newLab(t)
	port := l.script(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"+strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </aaaaaaaaaaaaaaaaaaaaaaaa>\r\n\r\n", hints))
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err == nil {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n%s", b)
		}
	})
	l.allow("plain.test", port)
	l.load()
	for round := range rounds {
		c := say(t, l.raw(t, "plain.test", port), "POST / HTTP/1.1\r\nHost: plain.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello")
		br := bufio.NewReader(c)
		got := map[int]int{}
		for got[200] == 0 {
			r, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("round %d: %v after %v", round, err, got)
			}
			got[r.StatusCode]++
			switch b, err := io.ReadAll(r.Body); {
			case r.StatusCode == 200 && (err != nil || string(b) != "hello"),
				r.StatusCode == 103 && r.Header.Get("Link") != "</aaaaaaaaaaaaaaaaaaaaaaaa>":
				t.Fatalf("round %d: %d %v %q %v", round, r.StatusCode, r.Header, b, err)
			}
		}
		if got[100] != 1 || got[103] != hints || len(got) != 3 {
			t.Fatalf("round %d: answers %v", round, got)
		}
		_ = c.Close()
	}
}

// TestStatusThatIsNone: an answer with a status that nobody can be sent is
// none, and its request has a whole record.
func TestStatusThatIsNone(t *testing.T) {
	l := newLab(t)
	for _, code := range []string{"000", "007", "099"} {
		port := l.script(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 "+code+" OK\r\nContent-Length: 1\r\n\r\nx")
		})
		l.allow("plain.test", port)
		l.load()
		r, _, err := body(l.client(t, false).Get("http://plain.test:" + strconv.Itoa(int(port)) + "/" + code))
		must(t, err)
		if r.StatusCode != http.StatusBadGateway || r.Header.Get("X-Sallyport-Reason") != "upstream_protocol" {
			t.Errorf("%s: %d %v", code, r.StatusCode, r.Header)
		}
		e := l.await(t, "end of "+code, func(e *audit.Event) bool {
			return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd && e.HTTP.Path == "/"+code
		})
		if e.HTTP.Status != http.StatusBadGateway || e.Error == nil || e.Error.Class != "protocol" {
			t.Errorf("%s: %+v %+v", code, e.HTTP, e.Error)
		}
	}
}
