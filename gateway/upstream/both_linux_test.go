package upstream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// tcpPair returns a connection of no pool, whose records are read ahead, and its
// peer.
func tcpPair(t *testing.T) (*conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(peer.Close(), accepted.Close()) })
	c := newConn(accepted, &Pool{conns: map[*conn]struct{}{}})
	c.secured = true
	return c, peer.(*net.TCPConn)
}

// arrive waits until so many bytes have arrived.
func arrive(t *testing.T, c *conn, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); Waiting(c.raw) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes of %d have arrived", Waiting(c.raw), n)
		}
	}
}

// lender counts what it has lent.
type lender struct {
	b   []byte
	out int
}

func (l *lender) lend() []byte { l.out++; return l.b }
func (l *lender) back()        { l.out-- }

// TestReadingBoth: into one buffer and the next, and nothing is lent when the
// first was not filled.
func TestReadingBoth(t *testing.T) {
	c, peer := tcpPair(t)
	a, p, behind := (*arriving)(c), make([]byte, 1000), &lender{b: make([]byte, 5000)}
	if n, err := a.ReadBoth(p, behind, false); n != 0 || err != errNone || behind.out != 0 {
		t.Errorf("of nothing %d, %v; %d are lent", n, err, behind.out)
	}
	for i, size := range []int{3000, 400, 1000} {
		text := bytes.Repeat([]byte{byte(i + 1)}, size)
		if _, err := peer.Write(text); err != nil {
			t.Fatal(err)
		}
		arrive(t, c, size)
		n, err := a.ReadBoth(p, behind, i == 0)
		if n != size || err != nil {
			t.Fatalf("%d of %d, %v", n, size, err)
		}
		if got := append(bytes.Clone(p[:min(n, len(p))]), behind.b[:max(0, n-len(p))]...); !bytes.Equal(got, text) {
			t.Errorf("%d other bytes", size)
		}
		if n > len(p) {
			behind.back()
		}
		if behind.out != 0 {
			t.Errorf("of %d bytes: %d are lent", size, behind.out)
		}
	}
	_ = peer.CloseWrite()
	if n, err := a.ReadBoth(p, behind, true); n != 0 || err != io.EOF || behind.out != 0 {
		t.Errorf("at the end %d, %v; %d are lent", n, err, behind.out)
	}
}

// TestNothingIsLentWhileReadingBothWaits, and what ends the wait is told as by
// any other read.
func TestNothingIsLentWhileReadingBothWaits(t *testing.T) {
	c, peer := tcpPair(t)
	a, p, behind := (*arriving)(c), make([]byte, 1000), &lender{b: make([]byte, 5000)}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // an error comes again
	_, err := a.ReadBoth(p, behind, true)
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) || behind.out != 0 {
		t.Errorf("%v; %d are lent", err, behind.out)
	}
	_ = c.SetReadDeadline(time.Time{}) // likewise
	_ = peer.SetLinger(0)              // it resets
	_ = peer.Close()
	_, err = a.ReadBoth(p, behind, true)
	if class, _ := ErrorClass(err); !errors.Is(err, syscall.ECONNRESET) || class != "reset" || behind.out != 0 {
		t.Errorf("%v; %d are lent", err, behind.out)
	}
	_ = c.Conn.Close()
	if _, err = a.ReadBoth(p, behind, true); !errors.Is(err, net.ErrClosed) || behind.out != 0 {
		t.Errorf("%v; %d are lent", err, behind.out)
	}
}

// collected keeps what is written.
type collected struct {
	net.Conn
	text  bytes.Buffer
	keeps bool
}

func (c *collected) Write(p []byte) (int, error) {
	if c.keeps {
		return c.text.Write(p)
	}
	return c.Conn.Write(p)
}

// filledPair returns a connection of no pool, TLS over it, and the peer's, which
// collects what it writes once kept.keeps is set.
func filledPair(t *testing.T, version uint16) (c *conn, client, server *tls.Conn, kept *collected) {
	t.Helper()
	c, peer := tcpPair(t)
	root, roots := newAuthority(t), x509.NewCertPool()
	roots.AddCert(root.cert)
	kept = &collected{Conn: peer}
	server = tls.Server(kept, &tls.Config{Certificates: []tls.Certificate{root.issue(t, nil)}, MaxVersion: version, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true})
	client = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "good.test"})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return c, client, server, kept
}

// TestFillingTellsOfTheEnd: of TLS 1.2, crypto/tls tells of a close_notify with
// the bytes before it, and net/http keeps no connection then.
func TestFillingTellsOfTheEnd(t *testing.T) {
	c, client, server, kept := filledPair(t, tls.VersionTLS12)
	kept.keeps = true
	const size = 40000
	_, err := server.Write(make([]byte, size))
	if err = errors.Join(err, server.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	_ = kept.Conn.SetWriteDeadline(time.Time{}) // CloseWrite has set one
	_, _ = kept.Conn.Write(kept.text.Bytes())   // what does not arrive is missed below
	arrive(t, c, kept.text.Len())
	if n, err := c.ahead.Fill(client, make([]byte, size)); n != size || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := c.ahead.Fill(client, make([]byte, size)); n != 0 || err != io.EOF {
		t.Errorf("then %d, %v", n, err)
	}
}

// refusing gives text, then an error, and text again: crypto/tls reads on behind
// an error of a handshake that it refuses.
type refusing struct{ reads int }

func (r *refusing) Read(p []byte) (int, error) {
	if r.reads++; r.reads == 2 {
		return 0, errNotAgain
	}
	return copy(p, "text"), nil
}

var errNotAgain = errors.New("no handshake again")

// TestNoErrorIsLostByFilling, also of one that comes only once.
func TestNoErrorIsLostByFilling(t *testing.T) {
	var a Ahead
	p, r := make([]byte, 100), &refusing{}
	if n, err := a.Fill(r, p); n != 4 || err != errNotAgain {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := a.Fill(r, p); n != 0 || err != errNotAgain {
		t.Errorf("then %d, %v", n, err)
	}
}

// TestFilling: all records that have arrived are read together. One of which a
// part has arrived holds up none before it, and comes whole when the rest has.
func TestFilling(t *testing.T) {
	c, client, server, kept := filledPair(t, 0)
	kept.keeps = true
	p := make([]byte, 128<<10)
	for i, size := range []int{1, 100, 16 << 10, 64 << 10, 100 << 10, 20 << 10, 5} {
		for _, cut := range []int{0, 1, 6, 21, 22, 4000} { // bytes of the last record that come later
			text := bytes.Repeat([]byte{byte(i), byte(cut)}, size)[:size]
			_, err := server.Write(text)
			if err != nil {
				t.Fatal(err)
			}
			sent := bytes.Clone(kept.text.Bytes())
			kept.text.Reset()
			at := max(0, len(sent)-cut)
			_, _ = kept.Conn.Write(sent[:at]) // what does not arrive is missed below
			arrive(t, c, at)
			got := 0
			if whole := len(sent) <= maxRecord; cut == 0 || !whole {
				if got, err = c.ahead.Fill(client, p); err != nil {
					t.Fatal(err)
				}
				if cut == 0 && got != size || size-got > maxPlain {
					t.Errorf("%d bytes, of which %d are to come: %d were read", size, cut, got)
				}
			}
			_, _ = kept.Conn.Write(sent[at:])
			for n := 0; got < size; got += n {
				if n, err = c.ahead.Fill(client, p[got:]); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(p[:got], text) || c.ahead.buf != nil {
				t.Fatalf("%d bytes, %d later: others were read, or a buffer is kept", size, cut)
			}
		}
	}
}
