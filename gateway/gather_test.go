package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// countedConn counts writes, and fails them when broken is set.
type countedConn struct {
	net.Conn
	writes atomic.Int64
	broken atomic.Bool
}

var errCable = errors.New("the cable was pulled")

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	if c.broken.Load() {
		n, _ := c.Conn.Write(p[:len(p)/2])
		return n, errCable
	}
	return c.Conn.Write(p)
}

// openedTLS returns the clear side of a TLS connection, what is below it, and its
// client.
func openedTLS(t *testing.T) (*clearConn, *countedConn, *tls.Conn) {
	t.Helper()
	l := newLab(t)
	config, err := l.g.configs.forName("api.test")
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	accepted, err := listener.Accept()
	must(t, err)
	t.Cleanup(func() { _ = errors.Join(dialled.Close(), accepted.Close()) })
	counted := &countedConn{Conn: accepted}
	h := &helloConn{meter: newMeter(counted), answering: true}
	server := tls.Server(h, config)
	client := tls.Client(dialled, &tls.Config{RootCAs: l.roots, ServerName: "api.test"})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	must(t, client.Handshake())
	must(t, <-shaken)
	h.done = true
	counted.writes.Store(0)
	return &clearConn{Conn: server, below: h}, counted, client
}

// TestRecordsAreSentTogether: a long text costs one write for each 64 KiB and
// not one for each record, and arrives as it is.
func TestRecordsAreSentTogether(t *testing.T) {
	c, below, client := openedTLS(t)
	text := make([]byte, 200<<10)
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	done := make(chan error, 1)
	go func() {
		n, err := c.Write(text)
		if err == nil && n != len(text) {
			err = io.ErrShortWrite
		}
		done <- err
	}()
	got := make([]byte, len(text))
	_, err := io.ReadFull(client, got)
	must(t, errors.Join(err, <-done))
	if !bytes.Equal(got, text) {
		t.Error("other bytes arrived")
	}
	if n := below.writes.Load(); n > 4 {
		t.Errorf("%d writes of 200 KiB, want 4", n)
	}
}

// TestGatheredRecordsKeepTheirOrder while others write short texts.
func TestGatheredRecordsKeepTheirOrder(t *testing.T) {
	c, _, client := openedTLS(t)
	const each, long = 50, 40 << 10
	var writers sync.WaitGroup
	for _, text := range [][]byte{bytes.Repeat([]byte{'l'}, long), bytes.Repeat([]byte{'m'}, long), []byte("s")} {
		writers.Go(func() {
			for range each {
				if n, err := c.Write(text); n != len(text) || err != nil {
					t.Errorf("wrote %d of %d: %v", n, len(text), err)
				}
			}
		})
	}
	got := make([]byte, each*(2*long+1))
	_, err := io.ReadFull(client, got)
	must(t, err)
	writers.Wait()
	for _, want := range []struct {
		b byte
		n int
	}{{'l', each * long}, {'m', each * long}, {'s', each}} {
		if n := bytes.Count(got, []byte{want.b}); n != want.n {
			t.Errorf("%d of %q arrived, want %d", n, want.b, want.n)
		}
	}
}

// TestNothingFollowsAGap: after a write that failed in the middle of gathered
// records nothing else is sent.
func TestNothingFollowsAGap(t *testing.T) {
	c, below, client := openedTLS(t)
	go func() { _, _ = io.Copy(io.Discard, client) }()
	below.broken.Store(true)
	if n, err := c.Write(make([]byte, 40<<10)); n != 0 || !errors.Is(err, errCable) {
		t.Errorf("%d, %v", n, err)
	}
	below.broken.Store(false)
	before := below.writes.Load()
	for _, size := range []int{1, 40 << 10} {
		if _, err := c.Write(make([]byte, size)); !errors.Is(err, errCable) {
			t.Errorf("%d bytes more: %v", size, err)
		}
	}
	if n := below.writes.Load(); n != before {
		t.Errorf("%d writes behind a gap", n-before)
	}
}

// TestHeldWritesGoTogether: between hold and release short and long texts cost
// one write, and nothing waits after it.
func TestHeldWritesGoTogether(t *testing.T) {
	c, below, client := openedTLS(t)
	var want bytes.Buffer
	write := func(n int) {
		p := bytes.Repeat([]byte{byte(n)}, n)
		want.Write(p)
		if k, err := c.Write(p); k != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", k, n, err)
		}
	}
	c.hold()
	write(4 << 10)
	write(60 << 10)
	write(2)
	if n := below.writes.Load(); n != 0 {
		t.Errorf("%d writes while they are held", n)
	}
	must(t, c.release())
	write(1)
	if n := below.writes.Load(); n != 2 {
		t.Errorf("%d writes, want 2", n)
	}
	got := make([]byte, want.Len())
	_, err := io.ReadFull(client, got)
	must(t, err)
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("other bytes arrived")
	}
}

// TestCloseTellsNoEndBehindWhatIsHeld: a client that was not sent all must not
// take what it has for the whole.
func TestCloseTellsNoEndBehindWhatIsHeld(t *testing.T) {
	c, below, client := openedTLS(t)
	c.hold()
	if _, err := c.Write(make([]byte, 40<<10)); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); !errors.Is(err, errWriting) {
		t.Errorf("the end was told: %v", err)
	}
	_ = c.Close() // an error says that it was closed
	if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || below.writes.Load() != 0 {
		t.Errorf("%d, %v after %d writes", n, err, below.writes.Load())
	}
}
