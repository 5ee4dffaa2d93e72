package inject

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net/http"
	"strings"

	"sallyport/secrets"
)

// Opcodes of WebSocket frames (RFC 6455, section 5.2).
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opControl      = 0x8 // and above
)

// messages plans what is done to the text messages of a WebSocket: values
// are put in the place of placeholders when a secret that is approved for the
// request may stand there. Extensions are not offered to an upstream that
// may be given any secret, since a compressed message cannot be looked into,
// neither to replace a placeholder nor to cover a value.
func (s *scan) messages(r *http.Request) {
	if !webSocket(r) {
		return
	}
	for _, n := range s.in.Decision.Inject {
		c := s.t.creds[n]
		if c == nil || !s.approved(c) {
			continue
		}
		if c.websocket {
			s.names = append(s.names, n)
			s.later = &scanInput{s.t, s.in}
		}
	}
	const extensions = "Sec-Websocket-Extensions"
	if lines := r.Header[extensions]; len(lines) > 0 && len(s.covered()) > 0 {
		e := s.edit(extensions, lines)
		for i := range e.fate {
			e.fate[i] = dropped
		}
	}
}

// webSocket says whether r asks for a WebSocket, by RFC 6455 or RFC 8441.
func webSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || len(r.Header[":protocol"]) == 1 && r.Header[":protocol"][0] == "websocket"
}

// Messages returns what goes to the upstream of a WebSocket when src is what
// the sandbox sends after the handshake. Reading ends with a *Refusal when a
// placeholder stands where it must not, and then the connection has to be
// cut. It returns src itself when there is nothing to do.
func (p *Plan) Messages(src io.Reader, values map[string]secrets.Value) io.Reader {
	if p.messages == nil {
		return src
	}
	return &messageReader{
		plan: p, src: bufio.NewReaderSize(src, bodyChunk),
		text: &texter{plan: p, scan: p.messages.scan(), values: values},
	}
}

// messageReader goes through the frames of a client.
type messageReader struct {
	plan *Plan
	src  *bufio.Reader
	text *texter
	out  bytes.Buffer
	err  error

	opcode byte   // of the data message under way; 0: none
	sent   bool   // a frame of the text message under way has gone out
	fresh  bool   // nothing of the text message under way has been read
	left   uint64 // of the payload of the frame under way, in bytes
	copied bool   // it goes out as it came
	fin    bool
	mask   [4]byte
	at     int // position in mask
}

func (m *messageReader) Read(b []byte) (int, error) {
	for m.out.Len() == 0 {
		if m.err != nil {
			return 0, m.err
		}
		m.err = m.next()
		if m.err != nil && m.err != io.EOF {
			uses := m.text.scan.uses
			if !m.sent { // of the message that they are of
				uses = Unsent(uses)
			}
			m.plan.record(uses)
			m.out.Reset()
		}
	}
	return m.out.Read(b)
}

func (m *messageReader) next() error {
	if m.left == 0 {
		return m.frame()
	}
	buf, err := m.src.Peek(int(min(m.left, uint64(max(m.src.Buffered(), 1)))))
	if len(buf) == 0 {
		return unexpected(err)
	}
	if m.copied {
		m.out.Write(buf)
	} else if err := m.part(buf); err != nil {
		return err
	}
	m.left -= uint64(len(buf))
	_, _ = m.src.Discard(len(buf))
	if m.left == 0 && !m.copied {
		return m.end()
	}
	return nil
}

// frame reads the head of a frame.
func (m *messageReader) frame() error {
	var head [14]byte
	if _, err := io.ReadFull(m.src, head[:2]); err != nil {
		return err
	}
	n := 2
	switch head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	masked := head[1]&0x80 != 0
	if masked {
		n += 4
	}
	if _, err := io.ReadFull(m.src, head[2:n]); err != nil {
		return unexpected(err)
	}
	opcode := head[0] & 0x0f
	started := m.opcode != 0
	if !masked || head[0]&0x70 != 0 || opcode == opContinuation != started && opcode < opControl || opcode > opBinary && opcode < opControl {
		return malformed("WebSocket frame")
	}
	m.left = uint64(head[1] & 0x7f)
	switch m.left {
	case 126:
		m.left = uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		m.left = binary.BigEndian.Uint64(head[2:])
	}
	m.fin, m.mask, m.at = head[0]&0x80 != 0, [4]byte(head[n-4:n]), 0
	if opcode >= opControl {
		m.copied = true
		m.out.Write(head[:n])
		return nil
	}
	if !started {
		m.opcode, m.sent, m.fresh = opcode, false, true
	}
	m.copied = m.opcode == opBinary
	if m.copied {
		m.out.Write(head[:n])
		if m.fin {
			m.opcode = 0
		}
		return nil
	}
	if m.left == 0 {
		return m.end()
	}
	return nil
}

// part takes a piece of the payload of a text frame.
func (m *messageReader) part(masked []byte) error {
	plain := make([]byte, len(masked))
	for i, c := range masked {
		plain[i] = c ^ m.mask[m.at&3]
		m.at++
	}
	m.begin()
	m.text.plain(plain)
	if !m.text.full() {
		return nil
	}
	return m.send(false)
}

// begin starts the text of a message.
func (m *messageReader) begin() {
	if m.fresh {
		m.fresh = false
		m.text.begin(place{kind: inWebSocket}, verbatim)
	}
}

// end ends a text frame.
func (m *messageReader) end() error {
	m.begin()
	if !m.fin {
		return nil // what was read goes out with what is next
	}
	if err := m.send(true); err != nil {
		return err
	}
	m.opcode, m.text.swaps = 0, 0
	m.plan.record(m.text.scan.uses)
	m.text.scan.uses, m.text.scan.names = nil, nil
	return nil
}

// send judges the text that has come and writes it as a frame.
func (m *messageReader) send(fin bool) error {
	if t := bytes.TrimLeft(m.text.decoded, " \t\r\n"); !m.sent && len(t) > 0 && strings.IndexByte(`{["`, t[0]) >= 0 {
		m.text.encode = jsonEscape // most messages are JSON
	}
	var payload bytes.Buffer
	if err := m.text.flush(&payload, fin); err != nil {
		return err
	}
	if payload.Len() == 0 && !fin {
		return nil
	}
	head := []byte{opText, 0x80}
	if m.sent {
		head[0] = opContinuation
	}
	if fin {
		head[0] |= 0x80
	}
	switch n := payload.Len(); {
	case n < 126:
		head[1] |= byte(n)
	case n <= 0xffff:
		head[1] |= 126
		head = binary.BigEndian.AppendUint16(head, uint16(n))
	default:
		head[1] |= 127
		head = binary.BigEndian.AppendUint64(head, uint64(n))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // never fails
	m.out.Write(append(head, mask[:]...))
	for i, c := range payload.Bytes() {
		m.out.WriteByte(c ^ mask[i&3])
	}
	m.sent = true
	return nil
}

// unexpected is the error of a stream that ends inside a frame.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
