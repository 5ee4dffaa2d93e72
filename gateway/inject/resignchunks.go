package inject

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"sallyport/policy"
)

const (
	// maxChunk is the longest chunk that is signed anew, in bytes: its
	// signature stands before it, so all of it has to be there.
	maxChunk = 8 << 20
	// maxChunkLine is the longest line of a body in signed chunks, in bytes.
	maxChunkLine = 4 << 10
	chunkExt     = ";chunk-signature="
	trailerSign  = "x-amz-trailer-signature:"
)

// stream signs the chunks of out's body anew while it is sent. Chunks and
// lengths stay as they are.
func (s *signature) stream(out *http.Request, creds aws.Credentials, now time.Time) error {
	_, seed, ok := strings.Cut(out.Header.Get("Authorization"), "Signature=")
	if !ok || !isDigest(seed) {
		return errors.New("sign: no signature to begin with")
	}
	if out.Body == nil || out.Body == http.NoBody {
		return &Refusal{Reason: policy.UninspectableBody, Message: "a body in signed chunks is announced, and none comes"}
	}
	now = now.UTC()
	day := now.Format("20060102")
	key := []byte("AWS4" + creds.SecretAccessKey)
	for _, part := range []string{day, s.region, s.service, "aws4_request"} {
		key = mac(key, part)
	}
	body := &chunkSigner{src: bufio.NewReaderSize(out.Body, bodyChunk), key: key, last: seed,
		head:  now.Format(amzTime) + "\n" + strings.Join([]string{day, s.region, s.service, "aws4_request"}, "/") + "\n",
		trail: s.payload == signedTail}
	out.Body, out.GetBody = tee{body, out.Body}, nil
	return nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}

// chunkSigner reads a body in signed chunks, whose signatures it makes anew.
// Each covers the one before, the first the signature of the head.
type chunkSigner struct {
	src   *bufio.Reader
	key   []byte
	head  string // time and scope
	last  string // signature
	trail bool   // signed trailers follow
	out   bytes.Buffer
	err   error
}

// Read gives the body. Its error is a *Refusal when it is not in such chunks.
func (c *chunkSigner) Read(b []byte) (int, error) {
	for c.out.Len() == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.err = c.next()
	}
	return c.out.Read(b)
}

// sign returns the signature of a text that is chained to the one before.
func (c *chunkSigner) sign(algorithm, text string) string {
	c.last = hex.EncodeToString(mac(c.key, algorithm+"\n"+c.head+c.last+"\n"+text))
	return c.last
}

// next signs one chunk; the last one returns io.EOF.
func (c *chunkSigner) next() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	size, old, ok := strings.Cut(line, chunkExt)
	n, perr := strconv.ParseUint(size, 16, 32)
	if !ok || perr != nil || !strings.HasSuffix(old, "\r\n") || !isDigest(old[:len(old)-2]) {
		return malformed("body in signed chunks")
	}
	if n > maxChunk {
		return &Refusal{Reason: policy.BodyTooLarge, Message: "a chunk is larger than the gateway holds of one that it signs"}
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(c.src, data); err != nil {
		return unexpected(err)
	}
	sum, empty := sha256.Sum256(data), sha256.Sum256(nil)
	signed := c.sign(sigV4+"-PAYLOAD", hex.EncodeToString(empty[:])+"\n"+hex.EncodeToString(sum[:]))
	fmt.Fprintf(&c.out, "%s%s%s\r\n%s", size, chunkExt, signed, data)
	if n == 0 {
		return c.end()
	}
	return c.newline()
}

// newline copies the end of a chunk.
func (c *chunkSigner) newline() error {
	var end [2]byte
	if _, err := io.ReadFull(c.src, end[:]); err != nil {
		return unexpected(err)
	}
	if string(end[:]) != "\r\n" {
		return malformed("body in signed chunks")
	}
	c.out.WriteString("\r\n")
	return nil
}

// end copies what is behind the last chunk: an empty line, or trailers, their
// signature and an empty line. An upstream reads nothing behind it.
func (c *chunkSigner) end() error {
	if !c.trail {
		if err := c.newline(); err != nil {
			return err
		}
		return c.over()
	}
	var covered strings.Builder
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		text := strings.TrimRight(line, "\r\n")
		switch {
		case text == "":
			c.out.WriteString(line)
			if line == "\r\n" {
				return c.over()
			}
		case strings.HasPrefix(text, trailerSign):
			sum := sha256.Sum256([]byte(covered.String()))
			c.out.WriteString(trailerSign + c.sign(sigV4+"-TRAILER", hex.EncodeToString(sum[:])) + line[len(text):])
		default:
			if covered.Len() > maxChunkLine {
				return malformed("body in signed chunks")
			}
			name, value, _ := strings.Cut(text, ":")
			covered.WriteString(strings.ToLower(strings.TrimSpace(name)) + ":" + strings.TrimSpace(value) + "\n")
			c.out.WriteString(line)
		}
	}
}

// over holds that nothing follows.
func (c *chunkSigner) over() error {
	if _, err := c.src.ReadByte(); err != io.EOF {
		if err == nil {
			return malformed("body in signed chunks")
		}
		return err
	}
	return io.EOF
}

func (c *chunkSigner) line() (string, error) {
	var b []byte
	for len(b) < maxChunkLine {
		part, err := c.src.ReadByte()
		if err != nil {
			return "", unexpected(err)
		}
		if b = append(b, part); part == '\n' {
			return string(b), nil
		}
	}
	return "", malformed("body in signed chunks")
}
