//go:build linux

package load

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// text is the body of an answer, of any framing.
func (c *conn) text() (string, error) {
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", resp.Status, b)
	}
	return string(b), err
}

// fetch: one request whose certificate is verified; its body is told.
func (w *worker) fetch(j Job) func() {
	return func() {
		c, err := w.pool.open(j.Host, 0, buffer)
		if err != nil {
			w.fail(err)
			return
		}
		defer c.close()
		w.res.Issuer = c.ConnectionState().PeerCertificates[0].Issuer.CommonName
		t := time.Now()
		if _, err = c.Write(w.pool.request(j.Host, j.Path)); err == nil {
			w.res.Text, err = c.text()
		}
		if err != nil {
			w.fail(err)
			return
		}
		w.add([]int64{int64(time.Since(t))}, 0, nil)
	}
}

// events: how long after it was written each event of a slow body is here.
func (w *worker) events(j Job) func() {
	c, err := w.pool.open(j.Host, 0, buffer)
	if err == nil {
		_, err = c.do(w.pool.request(j.Host, "/small"))
	}
	if err != nil {
		return func() { w.fail(err) }
	}
	return func() {
		defer c.close()
		w.timed(1, func(int) {
			lat, err := c.readEvents(w.pool.request(j.Host, j.Path), j.Count)
			if err == nil && len(lat) < j.Count {
				err = fmt.Errorf("%d of %d events came", len(lat), j.Count)
			}
			if err != nil {
				w.add(lat, 1, err)
				return
			}
			w.add(lat, 0, nil)
		})
	}
}

func (c *conn) readEvents(request []byte, n int) (lat []int64, err error) {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for len(lat) < n && lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			written, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return lat, err
			}
			lat = append(lat, time.Now().UnixNano()-written)
		}
	}
	return lat, lines.Err()
}
