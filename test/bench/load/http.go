//go:build linux

package load

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// buffer is what a connection reads into.
const buffer = 4 << 10

// keepAlive: requests on kept connections; their opening is not measured.
func (w *worker) keepAlive(j Job) func() {
	request := w.pool.request(j.Host, j.Path)
	conns := make([]*conn, j.Conns)
	w.timed(len(conns), func(i int) {
		c, err := w.pool.open(j.Host, i, buffer)
		if err == nil {
			if _, err = c.do(request); err != nil {
				c.close()
				c = nil
			}
		}
		if err != nil && !errors.Is(err, errClosing) {
			w.fail(err)
		}
		conns[i] = c
	})
	return func() {
		end := time.Now().Add(j.Time)
		w.timed(len(conns), func(i int) { w.loop(j, i, conns[i], request, end) })
	}
}

// loop asks on one connection, opened anew if need be, until end.
func (w *worker) loop(j Job, i int, c *conn, request []byte, end time.Time) {
	lat := make([]int64, 0, 4096)
	errs, last := 0, error(nil)
	for t := time.Now(); t.Before(end); {
		if c == nil {
			var err error
			if c, err = w.pool.open(j.Host, i, buffer); err != nil {
				errs, last, c = errs+1, err, nil
				time.Sleep(20 * time.Millisecond)
				t = time.Now()
				continue
			}
		}
		_, err := c.do(request)
		now := time.Now()
		if err == nil || errors.Is(err, errClosing) {
			lat = append(lat, int64(now.Sub(t)))
		} else {
			errs, last = errs+1, err
		}
		if err != nil {
			c.close()
			c = nil
		}
		t = now
	}
	c.close()
	w.add(lat, errs, last)
}

// newConnections: a connection for each request, and a name for each if the
// kind says so. Names are looked up before.
func (w *worker) newConnections(j Job) func() {
	host := func(int) string { return j.Host }
	if j.Kind == NewName {
		host = func(i int) string { return fmt.Sprintf("h%d-%d.%s", j.Serial, i, j.Host) }
		for i := range j.Count {
			if _, err := w.pool.where(host(i), i); err != nil {
				w.fail(err)
				break
			}
		}
	} else if _, err := w.pool.where(j.Host, 0); err != nil {
		w.fail(err)
	}
	var next atomic.Int64
	return func() {
		end := time.Now().Add(j.Time)
		w.timed(j.Conns, func(int) {
			lat := make([]int64, 0, 1024)
			errs, last := 0, error(nil)
			for errs < 100 {
				i, t := int(next.Add(1)-1), time.Now()
				if j.Count > 0 && i >= j.Count || j.Count == 0 && t.After(end) {
					break
				}
				if err := w.once(host(i), j.Path, i); err != nil {
					errs, last = errs+1, err
					continue
				}
				lat = append(lat, int64(time.Since(t)))
			}
			w.add(lat, errs, last)
		})
	}
}

func (w *worker) once(host, path string, i int) error {
	c, err := w.pool.open(host, i, buffer)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err = c.do(w.pool.request(host, path)); errors.Is(err, errClosing) {
		return nil
	}
	return err
}

// paced: one connection, so many requests a second.
func (w *worker) paced(j Job) func() {
	request := w.pool.request(j.Host, j.Path)
	c, err := w.pool.open(j.Host, 0, buffer)
	for i := 0; err == nil && i < 20; i++ {
		_, err = c.do(request)
	}
	if err != nil {
		return func() { w.fail(err) }
	}
	return func() {
		defer c.close()
		w.timed(1, func(int) {
			var lat []int64
			start := time.Now()
			for next := start; next.Sub(start) < j.Time; next = next.Add(time.Second / time.Duration(j.Rate)) {
				time.Sleep(time.Until(next))
				t := time.Now()
				if _, err := c.do(request); err != nil {
					w.add(lat, 1, err)
					return
				}
				lat = append(lat, int64(time.Since(t)))
			}
			w.add(lat, 0, nil)
		})
	}
}

// download: one body of so many bytes, on a connection that is open.
func (w *worker) download(j Job) func() {
	return w.bulk(j, 64<<10, func(c *conn) error {
		n, err := c.do(w.pool.request(j.Host, j.Path+"?n="+strconv.FormatInt(j.Bytes, 10)))
		if (err == nil || errors.Is(err, errClosing)) && n == j.Bytes {
			return nil
		}
		return fmt.Errorf("%d of %d bytes came: %w", n, j.Bytes, err)
	})
}

// upload: the same the other way.
func (w *worker) upload(j Job) func() {
	block := make([]byte, 64<<10)
	return w.bulk(j, buffer, func(c *conn) error {
		_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-data\r\nContent-Length: %d\r\n%s\r\n", j.Path, j.Host, j.Bytes, j.Header)
		for left := j.Bytes; err == nil && left > 0; {
			var n int
			n, err = c.Write(block[:min(left, int64(len(block)))])
			left -= int64(n)
		}
		if err != nil {
			return err
		}
		text, err := c.text()
		if err == nil && strings.TrimSpace(text) != strconv.FormatInt(j.Bytes, 10) {
			err = fmt.Errorf("the origin had %s of %d bytes", strings.TrimSpace(text), j.Bytes)
		}
		return err
	})
}

// bulk measures f on a connection that has been used.
func (w *worker) bulk(j Job, size int, f func(*conn) error) func() {
	c, err := w.pool.open(j.Host, 0, size)
	if err == nil {
		if _, err = c.do(w.pool.request(j.Host, "/small")); err == nil {
			return func() {
				defer c.close()
				w.timed(1, func(int) {
					start := time.Now()
					if err := f(c); err != nil {
						w.fail(err)
						return
					}
					w.res.Bytes = j.Bytes
					w.add([]int64{int64(time.Since(start))}, 0, nil)
				})
			}
		}
		c.close()
	}
	return func() { w.fail(err) }
}

// idle: so many connections, each used once, kept until the job ends.
func (w *worker) idle(j Job) func() {
	if _, err := w.pool.where(j.Host, 0); err != nil {
		return func() { w.fail(err) }
	}
	request := w.pool.request(j.Host, j.Path)
	var next atomic.Int64
	return func() {
		w.timed(8, func(int) {
			for i := int(next.Add(1)); i <= j.Count; i = int(next.Add(1)) {
				t := time.Now()
				c, err := w.pool.open(j.Host, i, 512)
				if err == nil {
					_, err = c.do(request)
				}
				if err != nil {
					w.fail(err)
					continue
				}
				w.mu.Lock()
				w.keep = append(w.keep, c)
				w.lat = append(w.lat, int64(time.Since(t)))
				w.mu.Unlock()
			}
		})
	}
}
