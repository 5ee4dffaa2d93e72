package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const (
	// maxPacked is the most of a compressed message that is held, in bytes.
	maxPacked = 8 << 20
	// maxUnpacked is the most that such a message may stand for, in bytes.
	maxUnpacked = 32 << 20
)

// envelopeKind is how a body is cut into messages, each of which may be
// compressed by itself.
type envelopeKind uint8

const (
	noEnvelopes     envelopeKind = iota
	binaryEnvelopes              // of gRPC, gRPC-Web and Connect
	textEnvelopes                // of gRPC-Web, in base64
)

// envelopesOf returns the kind of the messages of a body, and the coding in
// which those that are compressed are; "" for none.
func envelopesOf(h http.Header) (kind envelopeKind, coding string) {
	media, _, _ := strings.Cut(strings.ToLower(h.Get("Content-Type")), ";")
	media = strings.TrimSpace(media)
	field := "Grpc-Encoding"
	switch {
	case strings.HasPrefix(media, "application/grpc-web-text"):
		kind = textEnvelopes
	case strings.HasPrefix(media, "application/grpc"):
		kind = binaryEnvelopes
	case strings.HasPrefix(media, "application/connect+"):
		kind, field = binaryEnvelopes, "Connect-Content-Encoding"
	default:
		return noEnvelopes, ""
	}
	coding = strings.ToLower(strings.TrimSpace(strings.Join(h[field], ",")))
	if coding == "identity" {
		coding = ""
	}
	return kind, coding
}

// errPackedText is an answer of which no message is looked into.
var errPackedText = errors.New("messages that are compressed and then in base64 cannot be looked into")

// unpacks says whether messages of a kind and a coding can be looked into.
func (k envelopeKind) unpacks(coding string) error {
	switch {
	case k == noEnvelopes || coding == "":
		return nil
	case k == textEnvelopes:
		return errPackedText
	}
	_, err := codecOf(coding)
	return err
}

// messages returns src, a stream of messages that can be looked into, with
// values covered in them. A compressed message with a value goes on without
// compression; all others as they came. A compressed one is held whole, as it
// came. One that is compressed, although the answer names no coding, ends the
// stream. firm is that of a maskReader.
func (m *Masker) messages(kind envelopeKind, coding string, src io.Reader, hit func(name string), firm bool) io.Reader {
	switch kind {
	case textEnvelopes:
		src = &textMessages{src: src}
	case binaryEnvelopes:
		c, _ := codecOf(coding) // nothing undoes none
		src = &envelopeReader{m: m, c: c, src: src, hit: hit}
	}
	// Over the whole once more: what stands over the bounds of messages is read
	// by nobody as it is meant, but all of it can be read.
	return m.whole(&maskReader{}, src, hit, firm)
}

type envelopeReader struct {
	m    *Masker
	c    codec
	src  io.Reader
	hit  func(name string)
	out  bytes.Buffer
	open io.Reader // what is left of a message, as it goes on; nil: none

	packed *kept // the message, if it came compressed; nil: it did not
}

// envelopeHead is a byte of flags, of which the lowest says that the message
// is compressed, and its length.
const envelopeHead = 5

func (r *envelopeReader) Read(b []byte) (int, error) {
	for {
		if r.out.Len() > 0 {
			return r.out.Read(b)
		}
		if r.open != nil {
			n, err := r.open.Read(b)
			if err == io.EOF {
				r.ended()
				err = nil
			}
			if n > 0 || err != nil || len(b) == 0 {
				return n, err
			}
			continue
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
}

// errUnnamed ends a stream.
var errUnnamed = errors.New("response: a message is compressed, and the answer does not say how")

// next begins a message.
func (r *envelopeReader) next() error {
	var head [envelopeHead]byte
	if _, err := io.ReadFull(r.src, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if head[0]&1 == 0 {
		r.out.Write(head[:])
		r.open = &maskReader{m: r.m, src: &exactly{src: r.src, left: int64(size)}, hit: r.hit, firm: true}
		return nil
	}
	if r.c.decoder == nil {
		return errUnnamed
	}
	if size > maxPacked {
		return fmt.Errorf("response: a compressed message of %d bytes is not looked into", size)
	}
	packed := &kept{hold: func(n int64) error { return takeRoom(r.m.room, n) }, most: int64(size)}
	if _, err := io.CopyN(packed, r.src, int64(size)); err != nil {
		return unexpected(err)
	}
	length, found, err := r.measure(packed)
	if err != nil {
		return err
	}
	if r.packed = packed; found {
		head[0] &^= 1
		binary.BigEndian.PutUint32(head[1:], uint32(length))
		r.open = r.plain(packed, r.hit)
	} else {
		r.open, _ = packed.open() // whose error is nil
	}
	r.out.Write(head[:])
	return nil
}

// measure returns how long a message is that is held compressed, and whether a
// value is in it. Nothing of what it stands for is kept: it is decompressed
// once more if it has to go on as that.
func (r *envelopeReader) measure(packed *kept) (length int64, found bool, err error) {
	length, err = io.Copy(io.Discard, io.LimitReader(r.plain(packed, func(string) { found = true }), maxUnpacked+1))
	var refused *Refusal
	switch {
	case errors.As(err, &refused):
		return 0, false, refused
	case err != nil:
		return 0, false, fmt.Errorf("response: a message is not in the coding that it says: %w", err)
	case length > maxUnpacked:
		return 0, false, errors.New("response: a compressed message stands for too much to be looked into")
	}
	return length, found, nil
}

// plain returns what a message stands for, with values covered.
func (r *envelopeReader) plain(packed *kept, hit func(name string)) io.Reader {
	src, _ := packed.open() // whose error is nil
	return &maskReader{m: r.m, src: &lazyDecoder{src: src, codec: r.c, lease: lease{room: r.m.room}}, hit: hit, firm: true}
}

// ended lets go of the message that has gone on.
func (r *envelopeReader) ended() {
	r.open = nil
	if r.packed != nil {
		_ = takeRoom(r.m.room, -r.packed.asked) // there is always room for less
		r.packed = nil
	}
}

// exactly reads so many bytes, and no fewer.
type exactly struct {
	src  io.Reader
	left int64
}

func (e *exactly) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.src.Read(b[:min(int64(len(b)), e.left)])
	if e.left -= int64(n); err == io.EOF && e.left > 0 {
		err = io.ErrUnexpectedEOF
	} else if err == io.EOF {
		err = nil
	}
	return n, err
}
