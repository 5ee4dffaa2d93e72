package inject

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// EdgeOfRange is the place of a piece of a value by which a part of a body, as
// the answer to a request for a range, begins or ends, or in which it lies.
const EdgeOfRange = "edge of a range"

// Response covers values in the head, the body and the trailers of a
// response, which are changed in place; hit is called for each value with the
// place where it stood, for the body and the trailers while they are read.
// Nothing is called after the body has ended or failed.
//
// Lengths stay as they are, unless the body is compressed: then it is
// decompressed and compressed anew, and its length is not announced. So is a
// message that is compressed by itself, but not compressed anew. A body
// in a coding that cannot be undone is an error, and must not be delivered; so
// is a part of a body of less than 32 bytes. It is a *Refusal when there is no
// room for what is compressed (see Within).
//
// For an upgrade (101) only the head is changed; Reader covers what the
// upstream sends then.
func (m *Masker) Response(resp *http.Response, hit func(name, place string)) error {
	m.Header(resp.Header, func(name, header string) { hit(name, "response header "+header) })
	m.Header(resp.Trailer, func(name, header string) { hit(name, "response trailer "+header) }) // as announced
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == nil {
		return nil
	}
	inBody := func(name string) { hit(name, "response body") }
	body := &maskedBody{m: m, resp: resp, src: resp.Body, hit: hit}
	code := strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ",")))
	kind, packed := envelopesOf(resp.Header)
	partial := resp.StatusCode == http.StatusPartialContent
	switch {
	case resp.Body == http.NoBody || resp.Request != nil && resp.Request.Method == http.MethodHead:
		return nil
	case resp.ContentLength == 0:
		body.Reader = resp.Body // over HTTP/2, trailers may come all the same
	case len(m.names) == 0 && (kind != noEnvelopes || partial || !decodes(coding(resp.Header))):
		body.Reader = &unwatched{m: m, src: resp.Body}
	case kind.unpacks(packed) != nil:
		return fmt.Errorf("response: %w", kind.unpacks(packed))
	case partial && kind != noEnvelopes:
		return errors.New("response: a part of a body of messages cannot be looked into")
	case partial && code != "" && code != "identity":
		return fmt.Errorf("response: a part of a body in the coding %.40q cannot be looked into", code)
	case partial && severalParts(resp.Header):
		return errors.New("response: parts of a body in one answer cannot be looked into")
	case partial && resp.ContentLength > 0 && resp.ContentLength < minPart:
		return errShortPart
	case partial:
		body.Reader = m.part(resp.Body, inBody, func(name string) { hit(name, EdgeOfRange) })
	case (code == "" || code == "identity") && kind == noEnvelopes:
		body.Reader = m.whole(&body.whole, resp.Body, inBody, resp.ContentLength > 0)
	case code == "" || code == "identity":
		body.Reader, body.gathers = m.messages(kind, packed, resp.Body, inBody, resp.ContentLength > 0), true
		if packed != "" {
			resp.ContentLength = -1
			resp.Header.Del("Content-Length")
		}
	default:
		r, err := recode(code, resp.Body, m.room, func(r io.Reader) io.Reader { return m.messages(kind, packed, r, inBody, false) })
		if err != nil {
			return fmt.Errorf("response: %w", err)
		}
		body.Reader, body.gathers = r, true
		resp.ContentLength = -1
		for _, name := range []string{"Content-Length", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
			resp.Header.Del(name)
		}
	}
	resp.Body = body
	return nil
}

// unwatched is a body that begins when no value is held, and that is not looked
// into as others are. It ends when one comes in.
type unwatched struct {
	m   *Masker
	src io.Reader
}

// errCameIn ends such a body.
var errCameIn = errors.New("response: a secret was fetched meanwhile that cannot be looked for in the rest of the body")

func (u *unwatched) Read(b []byte) (int, error) {
	n, err := u.src.Read(b)
	if len(u.m.latest().names) > 0 {
		return 0, errCameIn
	}
	return n, err
}

// severalParts says whether a partial answer is not the one range that its
// Content-Range names (RFC 9110, section 15.3.7): each of several may be a
// piece of a value.
func severalParts(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "multipart/byteranges") || h.Get("Content-Range") == ""
}

// maskedBody is a body whose trailers are covered when it ends.
type maskedBody struct {
	io.Reader
	m       *Masker
	resp    *http.Response
	src     io.Closer
	hit     func(name, place string)
	gathers bool

	whole maskReader // Reader, where that is all that is done
}

// Gathers says whether a read of the body of an answer that Response has changed
// may wait for more than has arrived, however much that is: for the rest of a
// block that is compressed, or of a message.
func Gathers(resp *http.Response) bool {
	b, ok := resp.Body.(*maskedBody)
	return ok && b.gathers
}

func (b *maskedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil { // a body that cannot be decoded has trailers too
		b.m.latest().Header(b.resp.Trailer, func(name, header string) { b.hit(name, "response trailer "+header) })
	}
	return n, err
}

func (b *maskedBody) Close() error { return b.src.Close() }
