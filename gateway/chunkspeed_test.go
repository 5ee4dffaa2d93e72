package gateway

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

// BenchmarkChunks measures what a body in chunks costs, both ends of which are
// in this process.
func BenchmarkChunks(b *testing.B) {
	const size = 64 << 20
	for _, secure := range []bool{false, true} {
		l, scheme, host := newLab(b), "http", "plain.test"
		o := l.origin(b)
		if secure {
			o, scheme, host = l.origin(b, "http/1.1"), "https", "other.test"
		}
		l.allow(host, o.port)
		l.load()
		client := l.client(b, false)
		url := func(path string) string { return fmt.Sprintf("%s://%s:%d%s", scheme, host, o.port, path) }
		b.Run("download/"+scheme, func(b *testing.B) {
			b.SetBytes(size)
			for range b.N {
				r, err := client.Get(url(fmt.Sprintf("/down?n=%d", size)))
				must(b, err)
				n, err := io.Copy(io.Discard, r.Body)
				if err != nil || n != size || len(r.TransferEncoding) == 0 {
					b.Fatal(n, err, r.TransferEncoding)
				}
				_ = r.Body.Close()
			}
		})
		b.Run("upload/"+scheme, func(b *testing.B) {
			b.SetBytes(size)
			for range b.N {
				req, err := http.NewRequest(http.MethodPost, url("/up"), io.LimitReader(&pattern{}, size))
				must(b, err)
				r, _, err := body(client.Do(req))
				if must(b, err); r.StatusCode != http.StatusOK {
					b.Fatal(r.Status)
				}
			}
		})
	}
}
