package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// TestChunksAreNotHeld: wherever a body in chunks is cut, what has come of it
// was read before more is waited for, and nothing is changed.
func TestChunksAreNotHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		stream, data := []byte("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"), []byte(nil)
		before := make([]int, len(stream)) // bytes of data before each byte of the stream
		note := func(s string, is bool) {
			for _, c := range []byte(s) {
				before = append(before, len(data))
				if stream = append(stream, c); is {
					data = append(data, c)
				}
			}
		}
		for range 1 + r.IntN(5) {
			n := 1 + r.IntN(1<<r.IntN(18))
			note(fmt.Sprintf([]string{"%x\r\n", "%X;a=b\r\n", "000%x\r\n"}[r.IntN(3)], n), false)
			note(strings.Repeat(string(rune('a'+r.IntN(26))), n), true)
			note("\r\n", false)
		}
		note("0\r\nA: b\r\n\r\n", false)
		before = append(before, len(data))
		most, pos, left := 1<<(2+r.IntN(14)), 0, 0
		var got bytes.Buffer
		br := bufio.NewReader(guard(readerFunc(func(p []byte) (int, error) {
			if left == 0 {
				if due := before[pos]; got.Len() < due {
					t.Fatalf("round %d: of %d bytes that have come %d are held", round, due, due-got.Len())
				}
				if left = min(1+r.IntN(most), len(stream)-pos); left == 0 {
					return 0, io.EOF
				}
			}
			n := copy(p, stream[pos:pos+left])
			pos, left = pos+n, left-n
			return n, nil
		})))
		req, err := http.ReadRequest(br)
		if err != nil {
			t.Fatal(err)
		}
		for b := make([]byte, 32<<10); err == nil; {
			var n int
			n, err = req.Body.Read(b)
			got.Write(b[:n])
		}
		if err != io.EOF || !bytes.Equal(got.Bytes(), data) || req.Trailer.Get("A") != "b" {
			t.Fatalf("round %d: %d of %d bytes, %v, %v", round, got.Len(), len(data), err, req.Trailer)
		}
	}
}

// TestHugeChunks: a size near the largest number overflows nothing when the
// chunk comes in pieces, be they small or large.
func TestHugeChunks(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	sizes := []string{"7fffffffffffffff", "7ffffffffffffff0", "7FFFFFFFFFFFFFF3", "4000000000000000"}
	for _, size := range sizes {
		for name, writes := range map[string][]string{
			"small": {head + size + "\r\na", "b", "c"},
			"large": {head + "2710\r\nx", strings.Repeat("y", 9999), "\r\n" + size + "\r\n" + strings.Repeat("z", 31), strings.Repeat("z", 40)},
		} {
			t.Run(name+size, func(t *testing.T) {
				var got bytes.Buffer
				req, err := http.ReadRequest(bufio.NewReader(guard(readerFunc(func(p []byte) (int, error) {
					if len(writes) == 0 {
						return 0, io.EOF
					}
					n := copy(p, writes[0])
					if writes[0] = writes[0][n:]; writes[0] == "" {
						writes = writes[1:]
					}
					return n, nil
				}))))
				if err != nil {
					t.Fatal(err)
				}
				_, err = got.ReadFrom(req.Body)
				want := "abc"
				if name == "large" {
					want = "x" + strings.Repeat("y", 9999) + strings.Repeat("z", 71)
				}
				if got.String() != want || err == nil {
					t.Errorf("%d bytes, want %d, %v", got.Len(), len(want), err)
				}
			})
		}
	}
}
