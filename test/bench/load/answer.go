//go:build linux

package load

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
)

// readHead reads the head of an answer; a length of -1 is a chunked body.
func readHead(br *bufio.Reader) (status int, length int64, closing bool, err error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		return 0, 0, false, err
	}
	if len(line) < 12 {
		return 0, 0, false, fmt.Errorf("status line %q", line)
	}
	status, _ = strconv.Atoi(string(line[9:12])) // 0 of what is none
	for {
		if line, err = br.ReadSlice('\n'); err != nil {
			return 0, 0, false, err
		}
		if len(line) <= 2 {
			return status, length, closing, nil
		}
		if first := line[0] | 0x20; first != 'c' && first != 't' {
			continue
		}
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			length, err = strconv.ParseInt(value, 10, 64)
		case "transfer-encoding":
			length = -1
		case "connection":
			closing = strings.EqualFold(value, "close")
		}
		if err != nil {
			return 0, 0, false, err
		}
	}
}

func discard(br *bufio.Reader, n int64) error {
	for n > 0 {
		k, err := br.Discard(int(min(n, 1<<30)))
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

// discardChunks reads a chunked body to its end.
func discardChunks(br *bufio.Reader) (sum int64, err error) {
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return sum, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(string(line)), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil {
			return sum, fmt.Errorf("chunk: %w", err)
		}
		if err := discard(br, n+2); err != nil { // the data, or the empty trailer, and CRLF
			return sum, err
		}
		if n == 0 {
			return sum, nil
		}
		sum += n
	}
}
