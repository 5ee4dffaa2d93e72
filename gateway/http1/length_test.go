package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"
)

// arriving is a connection on which bytes have arrived, of which each read gives
// one record, and that knows how many there are.
type arriving struct {
	net.Conn
	rest []byte
}

func (a *arriving) Read(p []byte) (int, error) {
	n := copy(p, a.rest[:min(len(a.rest), 16<<10)])
	if a.rest = a.rest[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (a *arriving) Waiting() int { return len(a.rest) }

func (a *arriving) SetReadDeadline(time.Time) error { return nil }

// TestABodyOfALengthComesTogether: what has arrived of it is read at once, so
// far as there is room, and nothing behind its end.
func TestABodyOfALengthComesTogether(t *testing.T) {
	body := make([]byte, 300<<10)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", len(body))
	c := &arriving{rest: append([]byte(head), body...)}
	c.rest = append(c.rest, "GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n"...)
	br := bufio.NewReader(NewGuard(c, Limits{}))
	req, err := http.ReadRequest(br)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	pieces := 0
	for b := make([]byte, 3*(16<<10)+maxRecord); err == nil; pieces++ {
		var n int
		n, err = req.Body.Read(b)
		got.Write(b[:n])
	}
	if err != io.EOF || !bytes.Equal(got.Bytes(), body) {
		t.Fatalf("%d bytes of %d came: %v", got.Len(), len(body), err)
	}
	if most := 300/64 + 5; pieces > most { // what came with the head, the end of the body, the rest of a piece, and the end
		t.Errorf("the body came in %d pieces, not in %d", pieces, most)
	}
	if next, err := http.ReadRequest(br); err != nil || next.URL.Path != "/next" {
		t.Errorf("%v, %v", next, err)
	}
}
