package inject

import (
	"bufio"
	"bytes"
	"fmt"
	"hash"
	"hash/adler32"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the most memory that decompressing a body takes, in bytes; RFC
// 8878 asks decoders to admit windows of 8 MiB.
const maxWindow = 8 << 20

// flusher is a compressor.
type flusher interface {
	io.WriteCloser
	Flush() error
}

// codec is a content coding (RFC 9110, section 8.4.1). A decoder takes from the
// lease what it comes to hold besides decodes.
type codec struct {
	decoder          func(io.Reader, *lease) (io.Reader, error)
	encoder          func(io.Writer) (flusher, error)
	decodes, encodes int64 // bytes that each takes from its beginning
}

// codecOf returns the coding of a name. How well an encoder compresses counts
// for less than what each of many holds while nobody reads.
func codecOf(coding string) (codec, error) {
	switch coding {
	case "gzip", "x-gzip":
		return codec{
			func(r io.Reader, _ *lease) (io.Reader, error) { return gzip.NewReader(r) },
			func(w io.Writer) (flusher, error) { return gzip.NewWriterLevel(w, gzip.StatelessCompression) },
			deflateHolds, recoderHolds,
		}, nil
	case "deflate":
		return codec{inflate, func(w io.Writer) (flusher, error) { return &deflater{dst: w, sum: adler32.New()}, nil }, deflateHolds, recoderHolds}, nil
	case "br":
		return codec{
			newBrotliReader,
			func(w io.Writer) (flusher, error) {
				return brotli.NewWriterOptions(w, brotli.WriterOptions{Quality: 1, LGWin: 16}), nil
			},
			brotliRest, recoderHolds + 272<<10,
		}, nil
	case "zstd":
		return codec{
			func(r io.Reader, l *lease) (io.Reader, error) {
				return zstd.NewReader(&zstdFrames{src: r, lease: l}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
			},
			func(w io.Writer) (flusher, error) {
				return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<17))
			},
			zstdRest, recoderHolds + 704<<10,
		}, nil
	}
	return codec{}, fmt.Errorf("a body in the coding %.40q cannot be looked into", coding)
}

const (
	// deflateHolds is what a decoder of deflate holds, in bytes.
	deflateHolds = 40 << 10
	// recoderHolds is what a recoder holds besides its encoder, in bytes.
	recoderHolds = 24 << 10
)

// decodes says whether a body in a coding can be looked into.
func decodes(coding string) bool {
	_, err := codecOf(coding)
	return coding == "" || err == nil
}

// recode returns src decompressed, changed and compressed anew in the same
// content coding. What the source has sent goes out without waiting for more.
// All that is known to be held is taken from room at once, when the answer can
// still be another one.
func recode(coding string, src io.Reader, room Room, change func(io.Reader) io.Reader) (io.Reader, error) {
	c, err := codecOf(coding)
	if err != nil {
		return nil, err
	}
	dec := &lazyDecoder{src: src, codec: c, lease: lease{room: room}}
	if err := dec.lease.need(c.decodes); err != nil {
		return nil, err
	}
	return encode(coding, change(dec), room)
}

// encode returns src in a coding. What is taken from room for it is not given
// back.
func encode(coding string, src io.Reader, room Room) (io.Reader, error) {
	c, err := codecOf(coding)
	if err == nil {
		err = takeRoom(room, c.encodes)
	}
	if err != nil {
		return nil, err
	}
	r := &recoder{src: src, buf: make([]byte, 16<<10)}
	r.enc, err = c.encoder(&r.out)
	return r, err
}

// inflate reads the "deflate" coding, which is zlib, and is raw deflate where
// servers took its name at its word.
func inflate(r io.Reader, _ *lease) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}

// deflater writes the "deflate" coding (RFC 1950), and keeps nothing of what
// it has written.
type deflater struct {
	dst   io.Writer
	sum   hash.Hash32
	begun bool
}

func (d *deflater) Write(b []byte) (int, error) {
	if err := d.begin(); err != nil || len(b) == 0 {
		return 0, err
	}
	_, _ = d.sum.Write(b) // which never fails
	if err := flate.StatelessDeflate(d.dst, b, false, nil); err != nil {
		return 0, err
	}
	return len(b), nil
}

// begin writes the head: deflate, with a window of 32 KiB, compressed fast.
func (d *deflater) begin() error {
	if d.begun {
		return nil
	}
	d.begun = true
	_, err := d.dst.Write([]byte{0x78, 0x01})
	return err
}

// Flush does nothing: all has been written.
func (d *deflater) Flush() error { return nil }

// Close writes the end.
func (d *deflater) Close() error {
	if err := d.begin(); err != nil {
		return err
	}
	if err := flate.StatelessDeflate(d.dst, nil, true, nil); err != nil {
		return err
	}
	_, err := d.dst.Write(d.sum.Sum(nil))
	return err
}

// lazyDecoder opens a decoder when it is first read, since opening one waits
// for bytes. It lets go of it when it has ended.
type lazyDecoder struct {
	src   io.Reader
	codec codec
	lease lease
	dec   io.Reader
	err   error // with which it has ended
}

func (l *lazyDecoder) Read(b []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.dec == nil {
		if err := l.open(); err != nil {
			return 0, l.end(err)
		}
	}
	n, err := l.dec.Read(b)
	return n, l.end(err)
}

func (l *lazyDecoder) open() (err error) {
	if err := l.lease.need(l.codec.decodes); err != nil {
		return err
	}
	l.dec, err = l.codec.decoder(l.src, &l.lease)
	return err
}

// end is called with what reading has given, and returns it: if there was no
// room, that is why it has ended.
func (l *lazyDecoder) end(err error) error {
	if err == nil {
		return nil
	}
	if l.lease.err != nil {
		err = l.lease.err
	}
	l.err, l.dec = err, nil
	l.lease.end()
	return err
}

type recoder struct {
	src io.Reader // decompressed and changed
	enc flusher
	out bytes.Buffer // of enc
	buf []byte
	err error
}

func (r *recoder) Read(b []byte) (int, error) {
	for r.out.Len() == 0 {
		if r.err != nil {
			return 0, r.err
		}
		n, err := r.src.Read(r.buf)
		if _, werr := r.enc.Write(r.buf[:n]); werr != nil {
			r.err = werr
			continue
		}
		switch {
		case err == io.EOF:
			r.err = io.EOF
			if cerr := r.enc.Close(); cerr != nil {
				r.err = cerr
			}
		case err != nil:
			r.err = err // cut short, so that the client sees that it is
		default: // even of a whole buffer, since nothing may be behind it
			if ferr := r.enc.Flush(); ferr != nil {
				r.err = ferr
			}
		}
	}
	return r.out.Read(b)
}
