//go:build linux

package load

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// window is how much a peer may send before it hears of us again.
const window = 1 << 30

// multiplexed is an HTTP/2 connection on which one goroutine asks and reads.
type multiplexed struct {
	*tls.Conn
	br     *bufio.Reader
	bw     *bufio.Writer
	framer *http2.Framer
	block  []byte // the head of each request but the first
	first  []byte
	next   uint32
	begun  map[uint32]time.Time
	got    int // bytes since the window was last opened
	lat    []int64
}

// streams: so many requests at a time on one connection.
func (w *worker) streams(j Job) func() {
	c, err := w.pool.secure(j.Host, 0, "h2")
	if err == nil && c.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.Join(errors.New("no HTTP/2 here"), c.Close())
	}
	if err != nil {
		return func() { w.fail(err) }
	}
	m := &multiplexed{Conn: c, br: bufio.NewReaderSize(c, 32<<10), bw: bufio.NewWriterSize(c, 32<<10), next: 1, begun: map[uint32]time.Time{}}
	m.framer = http2.NewFramer(m.bw, m.br)
	m.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	m.framer.SetReuseFrames()
	err = errors.Join(m.encode(j), m.greet())
	return func() {
		defer func() { _ = c.Close() }() // the other side may have gone
		w.timed(1, func(int) {
			if err == nil {
				err = m.run(j.Conns, time.Now().Add(j.Time))
			}
			if err != nil {
				w.add(m.lat, 1, err)
				return
			}
			w.add(m.lat, 0, nil)
		})
	}
}

// encode makes the heads: the first fills the peer's table, the others point
// into it.
func (m *multiplexed) encode(j Job) error {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, out := range []*[]byte{&m.first, &m.block} {
		b.Reset()
		for _, f := range append([][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", j.Host}, {":path", j.Path},
			{"user-agent", "bench/1"}, {"accept", "*/*"}}, fields(j.Header)...) {
			if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				return err
			}
		}
		*out = bytes.Clone(b.Bytes())
	}
	return nil
}

// fields are lines of a head in HTTP/2's form.
func fields(lines string) (out [][2]string) {
	for line := range bytes.Lines([]byte(lines)) {
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if ok {
			out = append(out, [2]string{string(bytes.ToLower(name)), string(value)})
		}
	}
	return out
}

func (m *multiplexed) greet() error {
	_, err := m.bw.WriteString(http2.ClientPreface)
	return errors.Join(err,
		m.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}, http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		m.framer.WriteWindowUpdate(0, window), m.bw.Flush())
}

func (m *multiplexed) ask() error {
	block := m.block
	if m.next == 1 {
		block = m.first
	}
	m.begun[m.next] = time.Now()
	err := m.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: m.next, BlockFragment: block, EndStream: true, EndHeaders: true})
	m.next += 2
	return err
}

// run keeps n requests open until end, and then waits for the last of them.
func (m *multiplexed) run(n int, end time.Time) error {
	for range n {
		if err := m.ask(); err != nil {
			return err
		}
	}
	for len(m.begun) > 0 {
		if m.br.Buffered() == 0 {
			if err := m.bw.Flush(); err != nil {
				return err
			}
		}
		f, err := m.framer.ReadFrame()
		if err != nil {
			return err
		}
		ended, err := m.take(f)
		if err != nil {
			return err
		}
		if ended == 0 {
			continue
		}
		now := time.Now()
		m.lat = append(m.lat, int64(now.Sub(m.begun[ended])))
		delete(m.begun, ended)
		if now.Before(end) {
			if err := m.ask(); err != nil {
				return err
			}
		}
	}
	return nil
}

// take handles a frame and returns the stream that it ends, if it does.
func (m *multiplexed) take(f http2.Frame) (ended uint32, err error) {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		if s := f.PseudoValue("status"); s != "200" {
			return 0, fmt.Errorf("status %s", s)
		}
		if f.StreamEnded() {
			ended = f.StreamID
		}
	case *http2.DataFrame:
		if m.got += int(f.Length); m.got > window/2 {
			err = m.framer.WriteWindowUpdate(0, uint32(m.got))
			m.got = 0
		}
		if f.StreamEnded() {
			ended = f.StreamID
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			err = m.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			err = m.framer.WritePing(true, f.Data)
		}
	case *http2.RSTStreamFrame:
		err = fmt.Errorf("stream %d was reset: %s", f.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		err = fmt.Errorf("the connection is not kept: %s", f.ErrCode)
	}
	return ended, err
}
