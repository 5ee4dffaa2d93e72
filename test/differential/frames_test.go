package differential

import (
	"bytes"
	"encoding/binary"
	"io"
	"time"

	"golang.org/x/net/http2"
)

// framesFile has what a client of HTTP/2 sends after its preface on each line,
// as a Go string.
const framesFile = "testdata/frames.txt"

// frames is a sample of HTTP/2 that runs of http2guard's FuzzGuard grew.
type frames struct {
	host string
	raw  []byte
}

// heads counts the frames that may begin a request, and gives the streams that
// wait for an answer: their heads are whole and their sides are ended.
func (s frames) heads() (n int, left map[uint32]bool) {
	left = map[uint32]bool{}
	whole := map[uint32]bool{}
	for b := s.raw; len(b) >= 9; {
		size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		kind, flags, id := http2.FrameType(b[3]), http2.Flags(b[4]), binary.BigEndian.Uint32(b[5:])&^(1<<31)
		if len(b) < 9+size {
			break
		}
		b = b[9+size:]
		switch kind {
		case http2.FrameHeaders:
			n++
			whole[id] = flags.Has(http2.FlagHeadersEndHeaders)
			if flags.Has(http2.FlagHeadersEndStream) && whole[id] {
				left[id] = true
			}
		case http2.FrameData:
			if flags.Has(http2.FlagDataEndStream) && whole[id] {
				left[id] = true
			}
		case http2.FrameRSTStream:
			delete(left, id)
		}
	}
	return n, left
}

// sendFrames sends a sample and waits until the streams that it ended, or the
// connection, have ended.
func (l *lab) sendFrames(w *lane, s frames) (told, error) {
	tcp, err := l.dial(s.host, w.tls.port)
	if err != nil {
		return told{}, err
	}
	defer tcp.Close()
	_ = tcp.SetDeadline(time.Now().Add(answerTime)) // an error comes again
	t, err := l.secure(tcp, s.host, "h2")
	if err != nil {
		return told{}, err
	}
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&b, t)
	_ = fr.WriteSettings() // to memory
	b.Write(s.raw)
	if _, err := t.Write(b.Bytes()); err != nil {
		return told{closed: true}, nil // it was refused before it was whole
	}
	// A frame that breaks off ends the connection; without it a connection on
	// which nothing waits would stay.
	_ = t.CloseWrite()
	fr = http2.NewFramer(io.Discard, t)
	_, left := s.heads()
	end, err := listen(fr, left)
	_, _ = io.Copy(io.Discard, t) // as a stream does
	return end, err
}
