package gateway

import (
	"bytes"
	"testing"

	"sallyport/policy"
)

// BenchmarkRequest is what a request on a kept connection costs the gateway,
// with a swap, a policy and both records. Client and origin are in memory and
// counted with it.
func BenchmarkRequest(b *testing.B) {
	l := newLab(b)
	port := l.secured(b, answerEach)
	l.allow("api.test", port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	_, err := l.store.Get(b.Context(), secretName) // as the daemon does when it loads a policy
	must(b, err)
	l.load()
	c := l.rawTLS(b, "api.test", port, "http/1.1")
	ask := []byte("GET /small HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer $" + secretName + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	in := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(ask); err != nil {
			b.Fatal(err)
		}
		for got := 0; !bytes.HasSuffix(in[:got], []byte("\r\n\r\nok")); {
			k, err := c.Read(in[got:])
			if err != nil {
				b.Fatalf("%v after %q", err, in[:got])
			}
			got += k
		}
	}
}
