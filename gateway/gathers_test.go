package gateway

import (
	"compress/gzip"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net/http"
	"strconv"
	"testing"
	"time"

	"sallyport/policy"
)

// TestDecodedAnswersAreNotGathered: of an answer that is decompressed to be
// looked into, what has come goes out although the decompressor waits for the
// rest of a block of which much has arrived.
func TestDecodedAnswersAreNotGathered(t *testing.T) {
	const first, block, part = "the first bytes", 1<<16 - 1, 24 << 10
	// Blocks that are not compressed (RFC 1951, section 3.2.4): one of a few bytes, an
	// empty one, behind which a decompressor gives what it has, and a part of a long one.
	stored := func(length int) []byte {
		return binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16([]byte{0}, uint16(length)), ^uint16(length))
	}
	text := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255} // RFC 1952, section 2.3
	text = append(append(append(text, stored(len(first))...), first...), stored(0)...)
	text = append(append(text, stored(block)...), make([]byte, part)...)

	l := newLab(t)
	took := make(chan struct{})
	ln := listen(t)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(text)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-took:
			case <-time.After(2 * pieceWait):
			}
		})}
	go func() { _ = s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	port := portOf(ln)
	l.allow("api.test", port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	l.load()
	for range 30 {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test:"+strconv.Itoa(int(port))+"/", nil)
		must(t, err)
		q.Header.Set("Authorization", "Bearer $"+secretName)
		q.Header.Set("Accept-Encoding", "gzip")
		r, err := l.client(t, false).Do(q)
		must(t, err)
		got := make(chan error, 1)
		go func() {
			z, err := gzip.NewReader(r.Body)
			if err == nil {
				_, err = io.ReadFull(z, make([]byte, len(first)))
			}
			got <- err
		}()
		select {
		case err := <-got:
			must(t, err)
		case <-time.After(pieceWait):
			t.Fatal("held back until the upstream sends more")
		}
		took <- struct{}{}
		_ = r.Body.Close()
	}
}
