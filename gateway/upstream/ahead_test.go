package upstream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// arrived is what has arrived, of which more comes when next is called.
type arrived struct {
	here  []byte
	next  func() []byte // nil or nothing: it is the end
	reads int
}

func (a *arrived) Read(p []byte) (int, error) {
	a.reads++
	if len(a.here) == 0 && a.next != nil {
		a.here = a.next()
	}
	if len(a.here) == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.here)
	a.here = a.here[n:]
	return n, nil
}

func (a *arrived) Waiting() int { return len(a.here) }

func (a *arrived) ReadBoth(p []byte, behind Lender, wait bool) (int, error) {
	if len(a.here) == 0 && !wait {
		return 0, errNone
	}
	n, err := a.Read(p)
	if n == len(p) && len(a.here) > 0 {
		k := copy(behind.lend(), a.here)
		a.here = a.here[k:]
		n += k
	}
	return n, err
}

// over is what is read through an Ahead, as crypto/tls reads.
type over struct {
	a   *Ahead
	src Arriving
}

func (o over) Read(p []byte) (int, error) { return o.a.Read(o.src, p) }

// TestReadingAheadChangesNothing: whatever is asked for and however much comes,
// the same bytes are read, those that wait are known, and more is waited for
// only when all that has arrived was given.
func TestReadingAheadChangesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 100 {
		var want, got bytes.Buffer
		left := 20
		src := &arrived{}
		src.next = func() []byte {
			if got.Len() != want.Len() {
				t.Fatalf("round %d: of %d bytes %d were given before more is waited for", round, want.Len(), got.Len())
			}
			if left--; left < 0 {
				return nil
			}
			b := make([]byte, 1+random.IntN(1<<random.IntN(20)))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			want.Write(b)
			return b
		}
		var a Ahead
		for {
			p := make([]byte, 1+random.IntN(1<<random.IntN(16)))
			read := a.Read
			if round%2 == 1 {
				read = func(src Arriving, p []byte) (int, error) { return a.Fill(over{&a, src}, p) }
			}
			n, err := read(src, p)
			got.Write(p[:n])
			if round%2 == 1 && n < len(p) && got.Len() != want.Len() {
				t.Fatalf("round %d: of %d bytes %d were given, and there was room", round, want.Len(), got.Len())
			}
			if behind, knows := want.Len()-got.Len(), a.Waiting(src); knows > behind || knows < min(behind, maxRecord) {
				t.Fatalf("round %d: %d bytes wait, not %d", round, behind, knows)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) || a.buf != nil {
			t.Fatalf("round %d: %d bytes of %d, or others, or a buffer is kept", round, got.Len(), want.Len())
		}
	}
}

// TestMuchIsReadAhead: with few reads, and only while much comes.
func TestMuchIsReadAhead(t *testing.T) {
	const record = 16<<10 + 22
	src := &arrived{here: make([]byte, 100*record)}
	var a Ahead
	for p := make([]byte, record); ; {
		if _, err := a.Read(src, p); err != nil {
			break
		}
	}
	if src.reads > 30 {
		t.Errorf("%d reads of 100 records", src.reads)
	}
	src.here = make([]byte, 2000)
	if n, err := a.Read(src, make([]byte, record)); n != 2000 || err != nil || a.buf != nil {
		t.Errorf("%d, %v; a buffer is held: %v", n, err, a.buf != nil)
	}
}

// TestNothingReadAheadIsGivenAfterStop.
func TestNothingReadAheadIsGivenAfterStop(t *testing.T) {
	src := &arrived{here: make([]byte, 1<<20)}
	var a Ahead
	p := make([]byte, 16<<10)
	for range 2 {
		if _, err := a.Read(src, p); err != nil {
			t.Fatal(err)
		}
	}
	if a.buf == nil {
		t.Fatal("nothing was read ahead")
	}
	a.Stop()
	if n, err := a.Read(src, p); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d, %v", n, err)
	}
}
