package differential

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// madeStreams is how many samples of HTTP/2 are made.
const madeStreams = 900

// field is one field of a section, pseudo-header fields included.
type field struct{ name, value string }

// exchange is one stream of a client: what it sends, frame by frame.
type exchange struct {
	head    []field
	data    []string
	trailer []field
	pad     uint8
	split   int  // bytes of a HEADERS frame before CONTINUATION; 0 is all
	open    bool // the client never ends its side
}

// stream is what one client sends on one connection of HTTP/2.
type stream struct {
	host      string
	exchanges []exchange
	plain     []request
}

func (s stream) String() string { return fmt.Sprintf("%+v", s.exchanges) }

// collectStreams makes samples of HTTP/2, whose names follow those of first
// others.
func collectStreams(first int) []stream {
	g := newGenerator(seed + 1)
	out := make([]stream, madeStreams)
	for i := range out {
		out[i] = g.stream(fmt.Sprintf("c%05d.%s", first+i, domain))
	}
	return out
}

func (g generator) stream(host string) stream {
	s := stream{host: host}
	honest := g.chance(45)
	for range 1 + g.IntN(3) {
		r, x := g.exchange(host)
		s.plain = append(s.plain, r)
		if !honest {
			for range 1 + g.IntN(2) {
				g.mutateExchange(&x, host)
			}
		}
		s.exchanges = append(s.exchanges, x)
	}
	if !honest || slices.ContainsFunc(s.plain, func(r request) bool { return strings.HasPrefix(r.Target, "//") }) {
		s.plain = nil
	}
	return s
}

// exchange makes a stream as an honest client sends it.
func (g generator) exchange(host string) (request, exchange) {
	// net/http reads the target of HTTP/2 with net/url, which refuses a
	// stray percent sign.
	r := request{Method: pick(g, "GET", "GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "VERSION-CONTROL"), Host: host}
	for r.Target == "" || strings.Contains(strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(r.Target, "%2", ""), "%0", ""), "x=%zz", ""), "%") {
		r.Target = g.target()
	}
	x := exchange{head: []field{{":method", r.Method}, {":scheme", "https"}, {":authority", r.Host}, {":path", r.Target}}}
	g.Shuffle(len(x.head), func(i, j int) { x.head[i], x.head[j] = x.head[j], x.head[i] })
	for range g.IntN(4) {
		x.head = append(x.head, pick(g, field{"user-agent", "x/1"}, field{"cookie", "a=b"}, field{"cookie", "c=d"}, field{"accept", "*/*"}, field{"x-a", ""},
			field{"x-http-method-override", "DELETE"}, field{"x-forwarded-host", "evil.test"}, field{"x_y", "1"}, field{"priority", "u=1"}, field{"content-type", "text/plain"}))
	}
	if r.Method != "GET" && g.chance(70) {
		r.Body = strings.ReplaceAll(g.payload(), hostMark, host)
		for rest := r.Body; rest != ""; {
			n := 1 + g.IntN(len(rest))
			x.data, rest = append(x.data, rest[:n]), rest[n:]
		}
		if g.chance(40) {
			x.head = append(x.head, field{"content-length", fmt.Sprint(len(r.Body))})
		}
		if g.chance(20) {
			x.trailer = []field{{"x-trailer", "1"}}
		}
	}
	if g.chance(20) {
		x.head = append(x.head, field{"te", "trailers"}) // net/http refuses it twice
	}
	if g.chance(20) {
		x.pad = uint8(g.IntN(100))
	}
	if g.chance(20) {
		x.split = 1 + g.IntN(20)
	}
	return r, x
}

// mutateExchange changes a stream as somebody would who means harm.
func (g generator) mutateExchange(x *exchange, host string) {
	set := func(name, value string) {
		for i := range x.head {
			if x.head[i].name == name {
				x.head[i].value = value
			}
		}
	}
	i := g.IntN(len(x.head))
	switch g.IntN(10) {
	case 0:
		set(":path", pick(g, "", "*", "x", "//evil.test/x", "/a b", "/a\tb", "/a#b", "/\r\nX: y", "/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "/\x00", "/%zz", "/%", "http://evil.test/", "https://"+host+"/abs", "?x", "/\x7f", "/..", "/a\\..\\b", "/\xff"))
	case 1:
		set(":method", pick(g, "CONNECT", "TRACE", "", "get", "GET / HTTP/1.1\r\nX: ", "G ET", "PRI", "GET\t", "\xc3\xa9"))
	case 2:
		set(":authority", pick(g, "", "evil.test", host+":443", host+":1", "a@"+host, host+", evil.test", host+"/x", host+" ", host+".", strings.ToUpper(host), "["+host+"]", host+"\r\nX: y", host+"#", "127.0.0.1", host+"%00"))
	case 3:
		set(":scheme", pick(g, "http", "", "ftp", "HTTPS", "https://evil.test/", "h2c", "https\r\nX: y"))
	case 4:
		x.head = slices.Delete(x.head, i, i+1)
	case 5:
		x.head = append(x.head, x.head[i])
	case 6:
		j := g.IntN(len(x.head))
		x.head[i], x.head[j] = x.head[j], x.head[i]
	case 7:
		x.head = append(x.head, pick(g, field{"host", "evil.test"}, field{"host", host}, field{"Host", host}, field{"host", ""}, field{"connection", "close"}, field{"connection", "x-a"}, field{"transfer-encoding", "chunked"},
			field{"Transfer-Encoding", "chunked"}, field{"transfer-encoding", "identity"}, field{"upgrade", "websocket"}, field{"upgrade", "h2c"}, field{"te", "chunked"}, field{"keep-alive", "5"}, field{"proxy-connection", "keep-alive"},
			field{"content-length", "0"}, field{"content-length", "5"}, field{"content-length", "99999"}, field{"content-length", "+5"}, field{"content-length", "5, 5"}, field{"content-length", "0x5"}, field{"content-length", ""},
			field{":protocol", "websocket"}, field{":status", "200"}, field{":x", "y"}, field{"x", "a\r\nTransfer-Encoding: chunked"}, field{"x\r\ny", "z"}, field{"x: y\r\nz", "1"}, field{"x", "a\nb"}, field{"x", "a\x00b"}, field{"", "x"},
			field{"x y", "z"}, field{"x ", "y"}, field{"x", " y "}, field{"expect", "100-continue"}, field{"expect", "x"}, field{"X-Upper", "1"}, field{"trailer", "content-length"}, field{"cookie", "a\r\nX: y"}))
	case 8:
		switch g.IntN(4) {
		case 0:
			x.trailer = []field{pick(g, field{":path", "/x"}, field{"content-length", "5"}, field{"transfer-encoding", "chunked"}, field{"host", "evil.test"}, field{"x", "a\r\nb"}, field{"X-T", "1"}, field{"connection", "close"}, field{"", "x"})}
		case 1:
			x.open = true
		case 2:
			x.data = append(x.data, pick(g, "more", "0\r\n\r\n", "GET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n"))
		default:
			if len(x.data) > 0 {
				x.data = x.data[:len(x.data)-1]
			}
		}
	default:
		f := &x.head[i]
		piece := pick(g, "\r", "\n", "\x00", " ", "\t", ":", "\r\n", "\x7f", "\x80", "%", "#", "@", ",")
		if at := g.IntN(len(f.value) + 1); g.chance(70) {
			f.value = f.value[:at] + piece + f.value[at:]
		} else {
			f.name += piece
		}
	}
}

// sendStream sends a sample of HTTP/2 and waits until each of its streams, or
// the connection, has ended.
func (l *lab) sendStream(w *lane, s stream) (told, error) {
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
	end, err := speak(t, s)
	// What was not read when a connection is closed resets it, and with it what
	// the gateway has not read.
	_ = t.CloseWrite()            // it may have been closed
	_, _ = io.Copy(io.Discard, t) // up to the deadline
	return end, err
}

// told is what a client of HTTP/2 was told of its streams.
type told struct {
	streams int  // that were answered or reset
	closed  bool // the gateway closed the connection
}

// recorded is how many of n requests must be on record: all that the gateway
// took, and it takes all until it closes the connection.
func (e told) recorded(n int) (least, most int) {
	if e.closed {
		return max(1, e.streams), n
	}
	return n, n
}

func speak(t *tls.Conn, s stream) (told, error) {
	if _, err := io.WriteString(t, http2.ClientPreface); err != nil {
		return told{}, err
	}
	fr := http2.NewFramer(t, t)
	fr.AllowIllegalWrites = true
	if err := fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}); err != nil {
		return told{}, err
	}
	var table bytes.Buffer
	enc := hpack.NewEncoder(&table)
	block := func(fields []field) []byte {
		table.Reset()
		for _, f := range fields {
			_ = enc.WriteField(hpack.HeaderField{Name: f.name, Value: f.value}) // to memory
		}
		return bytes.Clone(table.Bytes())
	}
	left, broken := map[uint32]bool{}, false
	for i, x := range s.exchanges {
		id := uint32(2*i + 1)
		if x.send(fr, id, block) != nil {
			broken = true // it was refused before it was whole
			break
		}
		left[id] = !x.open
		if x.open {
			_ = fr.WriteRSTStream(id, http2.ErrCodeCancel) // as above
			delete(left, id)
		}
	}
	end, err := listen(fr, left)
	end.closed = end.closed || broken
	return end, err
}

// send writes the frames of one stream.
func (x exchange) send(fr *http2.Framer, id uint32, block func([]field) []byte) error {
	ends := len(x.data) == 0 && x.trailer == nil && !x.open
	if err := headers(fr, id, block(x.head), ends, x.split); err != nil {
		return err
	}
	for i, d := range x.data {
		last := i == len(x.data)-1 && x.trailer == nil && !x.open
		if err := fr.WriteDataPadded(id, last, []byte(d), make([]byte, x.pad)); err != nil {
			return err
		}
	}
	if x.trailer != nil {
		return headers(fr, id, block(x.trailer), !x.open, 0)
	}
	return nil
}

func headers(fr *http2.Framer, id uint32, b []byte, ends bool, split int) error {
	if split <= 0 || split >= len(b) {
		split = len(b)
	}
	err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:split], EndStream: ends, EndHeaders: split == len(b)})
	if err == nil && split < len(b) {
		err = fr.WriteContinuation(id, true, b[split:])
	}
	return err
}

// listen reads until the streams have ended, or the connection.
func listen(fr *http2.Framer, left map[uint32]bool) (end told, err error) {
	all := len(left)
	defer func() { end.streams = all - len(left) }()
	for len(left) > 0 {
		f, err := fr.ReadFrame()
		var ne net.Error
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
			return told{}, fmt.Errorf("the gateway neither answers nor resets %v", left)
		case err != nil:
			return told{closed: true}, nil
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return told{closed: true}, nil
			}
		case *http2.RSTStreamFrame:
			delete(left, f.StreamID)
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				delete(left, f.StreamID)
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				delete(left, f.StreamID)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = fr.WriteSettingsAck() // as above
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = fr.WritePing(true, f.Data) // as above
			}
		}
	}
	return told{}, nil
}
