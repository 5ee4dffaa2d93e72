package inject

import (
	"bufio"
	"bytes"
	"fmt"
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

// codec is a content coding (RFC 9110, section 8.4.1).
type codec struct {
	decoder func(io.Reader) (io.Reader, error)
	encoder func(io.Writer) (flusher, error)
}

// codecOf returns the coding of a name.
func codecOf(coding string) (codec, error) {
	switch coding {
	case "gzip", "x-gzip":
		return codec{
			func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
			func(w io.Writer) (flusher, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) },
		}, nil
	case "deflate":
		return codec{inflate, func(w io.Writer) (flusher, error) { return zlib.NewWriterLevel(w, zlib.BestSpeed) }}, nil
	case "br":
		return codec{
			func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
			func(w io.Writer) (flusher, error) { return brotli.NewWriterLevel(w, 2), nil },
		}, nil
	case "zstd":
		return codec{
			func(r io.Reader) (io.Reader, error) {
				return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
			},
			func(w io.Writer) (flusher, error) {
				return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<17))
			},
		}, nil
	}
	return codec{}, fmt.Errorf("a body in the coding %.40q cannot be looked into", coding)
}

// decodes says whether a body in a coding can be looked into.
func decodes(coding string) bool {
	_, err := codecOf(coding)
	return coding == "" || err == nil
}

// recode returns src decompressed, changed and compressed anew in the same
// content coding. What the source has sent goes out without waiting for more.
func recode(coding string, src io.Reader, change func(io.Reader) io.Reader) (io.Reader, error) {
	c, err := codecOf(coding)
	if err != nil {
		return nil, err
	}
	return encode(coding, change(&lazyDecoder{src: src, open: c.decoder}))
}

// encode returns src in a coding.
func encode(coding string, src io.Reader) (io.Reader, error) {
	c, err := codecOf(coding)
	if err != nil {
		return nil, err
	}
	r := &recoder{src: src, buf: make([]byte, 16<<10)}
	r.enc, err = c.encoder(&r.out)
	return r, err
}

// inflate reads the "deflate" coding, which is zlib, and is raw deflate where
// servers took its name at its word.
func inflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}

// lazyDecoder opens a decoder when it is first read, since opening one waits
// for bytes.
type lazyDecoder struct {
	src  io.Reader
	open func(io.Reader) (io.Reader, error)
	dec  io.Reader
}

func (l *lazyDecoder) Read(b []byte) (int, error) {
	if l.dec == nil {
		dec, err := l.open(l.src)
		if err != nil {
			return 0, err
		}
		l.dec = dec
	}
	return l.dec.Read(b)
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
