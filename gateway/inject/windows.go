package inject

import (
	"io"
	"reflect"
	"slices"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// brotliReader is a decoder of brotli that takes what it holds from a lease.
// The decoder makes its window as long as what it has read needs, which is
// often far less than the stream names; how long that is stands in the middle
// of the stream. So its size is looked at, before anything is waited for.
type brotliReader struct {
	src    io.Reader
	dec    *brotli.Reader
	is     reflect.Value // *dec
	slices []sliceIn
	lease  *lease
}

// brotliRest is what a decoder holds besides what grows, in bytes.
const brotliRest = 64 << 10

func newBrotliReader(src io.Reader, l *lease) (io.Reader, error) {
	r := &brotliReader{src: src, lease: l}
	r.dec = brotli.NewReader(brotliSource{r})
	r.is = reflect.ValueOf(r.dec).Elem()
	r.slices = slicesIn(r.is.Type(), nil)
	return r, nil
}

func (r *brotliReader) Read(b []byte) (int, error) {
	n, err := r.dec.Read(b)
	if lerr := r.count(); lerr != nil {
		return 0, lerr
	}
	return n, err
}

// count takes what the decoder has come to hold.
func (r *brotliReader) count() error {
	n := int64(0)
	for _, s := range r.slices {
		n += int64(r.is.FieldByIndex(s.at).Cap()) * s.size
	}
	return r.lease.need(brotliRest + n)
}

// brotliSource is what a decoder reads.
type brotliSource struct{ r *brotliReader }

func (s brotliSource) Read(b []byte) (int, error) {
	if err := s.r.count(); err != nil {
		return 0, err
	}
	return s.r.src.Read(b)
}

// sliceIn is a slice in a struct: where it stands, and the size of an element
// in bytes.
type sliceIn struct {
	at   []int
	size int64
}

// slicesIn returns the slices in a struct and in those in it. What two of them
// share counts twice.
func slicesIn(t reflect.Type, at []int) []sliceIn {
	var found []sliceIn
	for i := range t.NumField() {
		switch f := t.Field(i).Type; f.Kind() {
		case reflect.Slice:
			found = append(found, sliceIn{slices.Concat(at, []int{i}), int64(f.Elem().Size())})
		case reflect.Struct:
			found = append(found, slicesIn(f, slices.Concat(at, []int{i}))...)
		}
	}
	return found
}

// zstdFrames passes a stream of zstd on (RFC 8878, section 3), and takes the
// window of each of its frames from a lease before its head has gone on whole.
type zstdFrames struct {
	src   io.Reader
	lease *lease

	head   []byte // what has come of the head of a frame or of a block
	block  bool   // it is one of a block
	sum    bool   // a checksum follows the last block of the frame
	skip   int64  // bytes that are passed without a look
	broken bool   // the rest is for the decoder to refuse
}

// zstdRest is what a decoder holds besides what its window asks for, in bytes.
const zstdRest = 256 << 10

// zstdBlock is the longest block, in bytes (RFC 8878, section 3.1.1.2.4).
const zstdBlock = 128 << 10

func (z *zstdFrames) Read(b []byte) (int, error) {
	n, err := z.src.Read(b)
	for p := b[:n]; len(p) > 0 && !z.broken; {
		if z.skip > 0 {
			k := min(z.skip, int64(len(p)))
			z.skip, p = z.skip-k, p[k:]
			continue
		}
		z.head, p = append(z.head, p[0]), p[1:]
		if lerr := z.judge(); lerr != nil {
			return 0, lerr
		}
	}
	return n, err
}

// judge looks at a head, if it is whole.
func (z *zstdFrames) judge() error {
	if z.block {
		if len(z.head) == 3 {
			z.endHead(z.blockHead(uint32(z.head[0]) | uint32(z.head[1])<<8 | uint32(z.head[2])<<16))
		}
		return nil
	}
	var h zstd.Header
	switch err := h.Decode(z.head); {
	case err == io.ErrUnexpectedEOF:
		return nil
	case err != nil:
		z.broken = true
		return z.window(maxWindow)
	case h.Skippable:
		z.endHead(int64(h.SkippableSize))
		return nil
	}
	z.block, z.sum = true, h.HasCheckSum
	z.endHead(0)
	if h.SingleSegment {
		return z.window(h.FrameContentSize)
	}
	return z.window(h.WindowSize)
}

func (z *zstdFrames) endHead(skip int64) { z.head, z.skip = z.head[:0], skip }

// blockHead returns how many bytes there are before the next head.
func (z *zstdFrames) blockHead(head uint32) int64 {
	size := int64(head >> 3)
	if kind := head >> 1 & 3; kind == 1 {
		size = 1 // which is repeated
	}
	if head&1 != 0 {
		z.block = false
		if z.sum {
			size += 4
		}
	}
	return size
}

// window takes a window of n bytes, and what the decoder makes beside it. The
// decoder refuses those of more than maxWindow.
func (z *zstdFrames) window(n uint64) error {
	w := int64(min(n, maxWindow))
	return z.lease.need(zstdRest + w + 6*min(w, zstdBlock))
}
