package upstream

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
)

// fed is a connection on which pieces come one after the other.
type fed struct {
	net.Conn
	pieces [][]byte
	paused func() // before a piece other than the first, and before the end
	early  bool   // the end is told with the last bytes
}

func (f *fed) Read(p []byte) (int, error) {
	for len(f.pieces) > 0 && len(f.pieces[0]) == 0 {
		if f.pieces = f.pieces[1:]; f.paused != nil {
			f.paused()
		}
	}
	if len(f.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.pieces[0])
	f.pieces[0] = f.pieces[0][n:]
	if f.early && len(f.pieces) == 1 && len(f.pieces[0]) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// chunkedOver returns a connection that is at a body in chunks.
func chunkedOver(f *fed) *clearConn {
	c := newClearConn(f, newConn(f, &Pool{u: &Upstream{}}))
	c.body(&http.Response{StatusCode: http.StatusOK, TransferEncoding: []string{"chunked"}})
	return c
}

// split cuts b in pieces, of lengths that how says.
func split(b []byte, how func() int) (pieces [][]byte) {
	for len(b) > 0 {
		n := min(max(how(), 1), len(b))
		pieces, b = append(pieces, b[:n:n]), b[n:]
	}
	return pieces
}

// TestChunksAreNotHeld: wherever a stream of chunks is cut, what has come of
// them was read before more is waited for, and nothing is changed.
func TestChunksAreNotHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		var stream, data bytes.Buffer
		var before []int // bytes of data before each byte of the stream
		note := func(s string, is bool) {
			for _, c := range []byte(s) {
				before = append(before, data.Len())
				if stream.WriteByte(c); is {
					data.WriteByte(c)
				}
			}
		}
		for range 1 + r.IntN(5) {
			n := 1 + r.IntN(1<<r.IntN(18))
			note(fmt.Sprintf([]string{"%x\r\n", "%X;a=b\r\n", "000%x \r\n"}[r.IntN(3)], n), false)
			note(strings.Repeat(string(rune('a'+r.IntN(26))), n), true)
			note("\r\n", false)
		}
		note([]string{"0\r\n\r\n", "0\r\nA: b\r\n\r\n"}[r.IntN(2)], false)
		before = append(before, data.Len())
		whole, want := bytes.Clone(stream.Bytes()), bytes.Clone(data.Bytes())
		for name, how := range map[string]func() int{
			"small": func() int { return 1 + r.IntN(40) },
			"large": func() int { return 1 + r.IntN(30000) },
			"mixed": func() int { return 1 + r.IntN(1<<r.IntN(16)) },
		} {
			if name == "small" && len(whole) > 20000 {
				continue
			}
			var got bytes.Buffer
			pieces, came := split(bytes.Clone(whole), how), 0
			lengths := make([]int, len(pieces))
			for i, p := range pieces {
				lengths[i] = len(p)
			}
			next := "HTTP/1.1 200 OK\r\n\r\n"
			pieces = append(pieces, []byte(next))
			c := chunkedOver(&fed{pieces: pieces, paused: func() {
				if len(lengths) == 0 {
					return
				}
				came, lengths = came+lengths[0], lengths[1:]
				if due := before[came]; got.Len() < due {
					t.Fatalf("round %d, %s: of %d bytes that have come %d are held", round, name, due, due-got.Len())
				}
			}})
			body := httputil.NewChunkedReader(c)
			for b := make([]byte, 32<<10); ; {
				n, err := body.Read(b)
				if got.Write(b[:n]); err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("round %d, %s: %v", round, name, err)
				}
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Fatalf("round %d, %s: it reads otherwise", round, name)
			}
			if rest, err := io.ReadAll(c); err != nil || c.lost || !strings.HasSuffix(string(rest), next) {
				t.Fatalf("round %d, %s: behind the chunks %q, %v", round, name, rest, err)
			}
		}
	}
}

// FuzzChunks: what a stream of chunks is to net/http does not depend on how it
// comes, be it one or not.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "40000\r\nhel", "5;a=b\r\nhello\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"5\nhello\r\n", "\n", "\r\n", "x", "5\r\nhelloxx", "ffffffffffffffff\r\na", "00000000000000005\r\nhello\r\n", "5 x\r\nhello\r\n0\r\n\r\n", "5\rx\r\nhello",
		"1;" + strings.Repeat("e", 5000) + "\r\na\r\n0\r\n\r\n", "0\r\nno trailer\r\n\r\n",
	} {
		f.Add([]byte(s), []byte{1, 2, 3})
		f.Add([]byte(s), []byte{200, 1, 1, 7})
	}
	f.Fuzz(func(t *testing.T, stream, cuts []byte) {
		want, wantErr := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(stream)))
		for _, early := range []bool{false, true} {
			i := 0
			pieces := split(bytes.Clone(stream), func() int {
				if len(cuts) == 0 {
					return len(stream)
				}
				i++
				return int(cuts[i%len(cuts)])
			})
			got, err := io.ReadAll(httputil.NewChunkedReader(chunkedOver(&fed{pieces: pieces, early: early})))
			if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
				t.Errorf("in pieces %q, %v; whole %q, %v; the end early %v", got, err, want, wantErr, early)
			}
		}
	})
}

// TestHeadEndsARead: net/http holds nothing of a body when it has read a head,
// however they come.
func TestHeadEndsARead(t *testing.T) {
	const interim, head, body = "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "body\r\n\r\nof a length"
	for cut := 1; cut < 2*80; cut++ {
		pieces := func(text string) [][]byte { return split([]byte(text), func() int { return cut % 80 }) }
		f := &fed{pieces: pieces(interim + head + body)}
		c := newClearConn(f, newConn(f, &Pool{u: &Upstream{}}))
		read := func(until string, last bool) {
			t.Helper()
			var got []byte
			for b := make([]byte, 4096); string(got) != until; {
				n, err := c.Read(b)
				got = append(got, b[:n]...)
				if last && err == io.EOF && string(got) == until {
					err = nil
				}
				if err != nil || !strings.HasPrefix(until, string(got)) {
					t.Fatalf("cut at %d: %q, %v", cut, got, err)
				}
			}
		}
		read(interim, false)
		read(head, false)
		c.body(&http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(body))})
		read(body, false)
		f.pieces, f.early = pieces(head), cut > 80
		read(head, true)
	}
}

// TestNothingIsReadBehindAnAnswer: what comes behind an answer, however it is
// cut, is not taken for the next one.
func TestNothingIsReadBehindAnAnswer(t *testing.T) {
	const interim, head, behind = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"
	for name, tt := range map[string]struct {
		body, last string // of what is read of the body
		resp       *http.Response
	}{
		"none":   {"", "", &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}},
		"204":    {"", "", &http.Response{StatusCode: http.StatusNoContent}},
		"length": {"body", "body", &http.Response{StatusCode: http.StatusOK, ContentLength: 4}},
		"chunks": {"4\r\nbody\r\n0\r\n\r\n", "\r\n0\r\n\r\n", &http.Response{StatusCode: http.StatusOK, TransferEncoding: []string{"chunked"}}},
	} {
		for _, early := range []bool{false, true} {
			whole := interim + head + tt.body + behind
			for cut := range len(behind) { // so that the last piece has all of what is behind, and more
				at := len(whole) - len(behind) - min(cut, len(tt.body)+len(head)-1)
				f := &fed{pieces: [][]byte{[]byte(whole[:at]), []byte(whole[at:])}, early: early}
				c := newClearConn(f, newConn(f, &Pool{u: &Upstream{}}))
				b := make([]byte, 4096)
				got := ""
				for got != interim+head {
					n, err := c.Read(b)
					if err != nil {
						t.Fatalf("%s, at %d: %q, %v", name, at, got, err)
					}
					got += string(b[:n])
				}
				c.body(tt.resp)
				for got = ""; !strings.HasSuffix(got, tt.last); {
					n, err := c.Read(b)
					if err != nil {
						t.Fatalf("%s, at %d: %q, %v", name, at, got, err)
					}
					got += string(b[:n])
				}
				if at == len(whole)-len(behind) {
					continue // it came by itself, as an answer may
				}
				if n, err := c.Read(b); n != 0 || err == nil || strings.Contains(got, "HTTP") {
					t.Errorf("%s, at %d: %q and then %q, %v", name, at, got, b[:n], err)
				}
				if !c.behind.Load() {
					t.Errorf("%s, at %d: a request would be sent", name, at)
				}
			}
		}
	}
}

// TestBehindALongAnswer: what stands behind a body is also seen where net/http
// reads into no more than the body has room in.
func TestBehindALongAnswer(t *testing.T) {
	const head, behind = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"
	body := strings.Repeat("b", 8<<10)
	f := &fed{pieces: [][]byte{[]byte(head), []byte(body + behind)}}
	under := newConn(f, &Pool{u: &Upstream{}})
	under.secured = true // so that what has come is read without a wait
	c := newClearConn(f, under)
	b := make([]byte, len(body))
	if n, err := c.Read(b); err != nil || string(b[:n]) != head {
		t.Fatalf("%q, %v", b[:n], err)
	}
	c.body(&http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(body))})
	if n, err := io.ReadFull(c, b); err != nil || string(b[:n]) != body {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if !c.behind.Load() {
		t.Error("a request would be sent")
	}
}
