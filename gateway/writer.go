package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"

	"sallyport/gateway/inject"
	"sallyport/gateway/upstream"
)

// buffers lends what is read into: copies to every relay and answer, bulk to an
// answer of which much has arrived, and records to clients' connections of TLS.
var buffers = struct {
	copies, bulk bufferPool
	records      upstream.Buffers
}{copies: bufferPool{size: bufferSize}, bulk: bufferPool{size: bulkSize}}

// answerWriter is the sandbox's side of an exchange. It sends on what has
// come as soon as the upstream pauses, so that no stream is held back, and
// leaves the grouping of bytes that come together to the server.
type answerWriter struct {
	http.ResponseWriter
	x       *exchange
	opened  *clearConn // below HTTP/1.1; nil: it is without TLS, or HTTP/2
	begun   bool
	written int64
}

// writer returns the writer that goproxy is to write the answer to.
func (x *exchange) writer() http.ResponseWriter {
	w := &x.answer
	*w = answerWriter{ResponseWriter: x.r.w, x: x}
	if g := x.r.c.guard; g != nil {
		w.opened, _ = g.Conn.(*clearConn)
	}
	if isExtendedConnect(x.r.in) {
		return streamHijacker{w}
	}
	if _, ok := x.r.w.(http.Hijacker); ok {
		return connHijacker{w}
	}
	return w
}

// Unwrap gives http.ResponseController the server's own writer.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the final answer. Fields are sent at once when the
// length of the body is not known: it may be long in coming.
func (w *answerWriter) WriteHeader(code int) {
	if w.begun {
		return
	}
	w.begun = true
	w.x.early.stop()
	w.x.status = code
	w.ResponseWriter.WriteHeader(code)
	if w.x.length < 0 && code != http.StatusSwitchingProtocols {
		w.Flush()
	}
}

// Flush sends what is buffered.
func (w *answerWriter) Flush() {
	w.x.waits()
	err := w.x.control.Flush()
	w.x.written()
	w.note(err)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	n, err := w.send(p)
	if err == nil && w.written != w.x.length {
		w.Flush()
	}
	return n, err
}

// send writes without flushing.
func (w *answerWriter) send(p []byte) (int, error) {
	w.x.waits()
	n, err := w.ResponseWriter.Write(p)
	w.x.written()
	w.written += int64(n)
	w.note(err)
	return n, err
}

// note keeps that the sandbox's side is gone.
func (w *answerWriter) note(err error) {
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		w.x.fail(errClientGone)
	}
}

// ReadFrom copies the answer's body. A read that does not fill the buffer
// means that the upstream has no more at the moment.
func (w *answerWriter) ReadFrom(src io.Reader) (int64, error) {
	bp := buffers.copies.get()
	defer buffers.copies.put(bp)
	var total int64
	long := w.x.length < 0 || w.x.length > bufferSize // as far as is known
	for much := long && w.more(); ; {
		var n int
		var m int64
		var err, werr error
		if !much {
			n, err = src.Read(*bp)
			much = err == nil && n > len(*bp)-maxRecord && w.written+int64(n) != w.x.length && w.more()
		}
		if much {
			m, err, werr = w.bulk((*bp)[:n], src)
		} else {
			m, werr = w.pass((*bp)[:n], n < len(*bp))
		}
		total += m
		switch {
		case werr != nil:
			return total, werr
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, err
		}
		much = much && w.written != w.x.length && w.more()
	}
}

// heldFrom is from how many bytes on what is written is held. What is shorter
// the server writes at once anyway, if it writes it.
const heldFrom = 2 << 10

// pass sends p on, at once if the upstream pauses behind it. The server writes
// the head and the first bytes of a body by themselves, and what is around a
// chunk: of much all is sent together.
func (w *answerWriter) pass(p []byte, pauses bool) (int64, error) {
	if w.opened == nil || len(p) < heldFrom {
		return w.passOn(p, pauses)
	}
	w.opened.hold()
	n, err := w.passOn(p, pauses)
	w.x.waits()
	failed := w.opened.release()
	w.x.written()
	if failed != nil {
		w.note(failed)
		w.x.r.c.guard.Halt()
		w.x.unsent = true // the server does not know of it
	}
	return n, errors.Join(err, failed)
}

// passOn is pass without regard to how many writes it takes.
func (w *answerWriter) passOn(p []byte, pauses bool) (int64, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := w.send(p)
	if err == nil && pauses && w.written != w.x.length {
		w.Flush()
	}
	return int64(n), err
}

// maxRecord is the longest record of TLS, in bytes (RFC 8446, section 5.2).
const maxRecord = 5 + 16<<10 + 256

// more says whether another read of the answer's body has something at once:
// so much has arrived that a whole record is in it.
func (w *answerWriter) more() bool { return !w.x.gathers && w.x.info.Waiting() >= maxRecord }

// bulk sends on what was read together with what has arrived behind it, which
// is more: of much that comes in small pieces each costs.
func (w *answerWriter) bulk(begun []byte, src io.Reader) (sent int64, err, werr error) {
	bp := buffers.bulk.get()
	defer buffers.bulk.put(bp)
	n := copy(*bp, begun)
	k, err := src.Read((*bp)[n:])
	sent, werr = w.pass((*bp)[:n+k], true)
	return sent, err, werr
}

// connHijacker lets an HTTP/1.1 connection be taken over after 101.
type connHijacker struct{ *answerWriter }

// Hijack takes the connection over.
func (h connHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := h.x.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	// What the server has read already goes the same way as the rest.
	early, _ := rw.Reader.Peek(rw.Reader.Buffered()) // it has so many
	hc := newHijackedConn(c, io.MultiReader(bytes.NewReader(bytes.Clone(early)), c), h.x)
	h.x.hijack(hc)
	return hc, bufio.NewReadWriter(bufio.NewReader(bytes.NewReader(nil)), rw.Writer), nil
}

// hijackedConn counts what passes after an upgrade.
type hijackedConn struct {
	net.Conn
	x        *exchange
	messages io.Reader // what comes from Conn, as it may go on
}

// newHijackedConn returns c as the exchange's; src is what is read of it.
func newHijackedConn(c net.Conn, src io.Reader, x *exchange) *hijackedConn {
	return &hijackedConn{Conn: c, x: x, messages: x.messages(src)}
}

func (h *hijackedConn) Read(p []byte) (int, error) {
	n, err := h.messages.Read(p)
	if err != nil {
		var refused *inject.Refusal
		if errors.As(err, &refused) {
			h.x.fail(refused)
		}
	}
	h.x.sent.Add(int64(n))
	h.x.moved()
	if e := h.x.r.meters.add(int64(n), 0); e != nil {
		h.x.fail(e)
		return 0, e
	}
	return n, err
}

func (h *hijackedConn) Write(p []byte) (int, error) {
	if err := h.x.r.meters.add(0, int64(len(p))); err != nil {
		return 0, err
	}
	h.x.waits()
	n, err := h.Conn.Write(p)
	h.x.written()
	h.x.received.Add(int64(n))
	return n, err
}
