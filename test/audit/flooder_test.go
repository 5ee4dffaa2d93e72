//go:build linux

package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"sallyport/test/lab"
)

// flooder is set, to the name of a flood, for the process that floods: the
// test's own program, started inside the sandbox. It prints what it made.
const flooder = "AUDIT_TEST_FLOODER"

// floodTime is how long a flood lasts, floodRate the attempts in a second of
// one whose rate does not depend on answers.
const (
	floodTime = 4 * time.Second
	floodRate = 20_000
)

// flood is the main function of the process that floods.
func flood(name string) error {
	switch name {
	case "packets":
		var n [2]int
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { n[0], errs[0] = floodPackets() })
		wg.Go(func() { n[1], errs[1] = floodQuestions() })
		wg.Wait()
		fmt.Println(n[0], n[1])
		return errors.Join(errs[:]...)
	case "requests":
		refused, unanswered, err := floodRequests("flood.bad.test")
		fmt.Println(refused, unanswered)
		return err
	}
	return fmt.Errorf("no flood %q", name)
}

// floodPackets sends packets that are refused.
func floodPackets() (int, error) {
	c, err := net.Dial("udp", net.JoinHostPort(lab.Origin, "9999"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	data := []byte("data")
	return paced(func() error {
		_, err := c.Write(data)
		for range 3 { // the refusal of the one before is reported first
			if err == nil {
				return nil
			}
			_, err = c.Write(data)
		}
		return err
	}), nil
}

// paced calls send about floodRate times a second for floodTime, and returns
// how often it did without an error.
func paced(send func() error) (n int) {
	begun := time.Now()
	for time.Since(begun) < floodTime {
		due := int(time.Since(begun).Seconds() * floodRate)
		if n >= due {
			time.Sleep(time.Millisecond)
			continue
		}
		for range min(due-n, 200) {
			if send() == nil {
				n++
			}
		}
	}
	return n
}

// floodQuestions asks for new names as fast as they are answered, over some
// sockets, and returns how many were answered. A question that is lost on the
// way was not decided, so only one is under way on each.
func floodQuestions() (int, error) {
	var answered atomic.Int64
	var errs [8]error
	var wg sync.WaitGroup
	end := time.Now().Add(floodTime)
	for w := range errs {
		wg.Go(func() {
			c, err := net.Dial("udp", "192.0.2.53:53")
			if err != nil {
				errs[w] = err
				return
			}
			defer c.Close()
			buf := make([]byte, 1500)
			for i := 0; time.Now().Before(end) && errs[w] == nil; i++ {
				m := new(dns.Msg)
				m.SetQuestion(fmt.Sprintf("w%d-%d.evil.test.", w, i), dns.TypeA)
				b, _ := m.Pack() // it always packs
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				if _, errs[w] = c.Write(b); errs[w] == nil {
					_, errs[w] = io.ReadAtLeast(c, buf, 12)
				}
				if errs[w] == nil {
					answered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(answered.Load()), errors.Join(errs[:]...)
}

// Connections of a flood of requests.
const (
	pipelined = 64 // HTTP/1.1, with requests that wait for no answer
	multiplex = 4  // HTTP/2
)

// floodRequests asks host for what is refused, as fast as it is answered. It
// returns how many were refused, and how many were not answered.
func floodRequests(host string) (int64, int64, error) {
	to, err := net.DefaultResolver.LookupHost(context.Background(), host)
	if err != nil {
		return 0, 0, err
	}
	address := net.JoinHostPort(to[0], "443")
	var refused, unanswered atomic.Int64
	var errs [pipelined]error
	var wg sync.WaitGroup
	end := time.Now().Add(floodTime)
	for n := range errs {
		wg.Go(func() { errs[n] = pipeline(address, host, n, end, &refused, &unanswered) })
	}
	for n := range multiplex {
		wg.Go(func() { streams(address, host, n, end, &refused, &unanswered) })
	}
	wg.Wait()
	return refused.Load(), unanswered.Load(), errors.Join(errs[:]...)
}

// pipeline sends requests on one connection, fifty before their answers, and
// takes all answers.
func pipeline(address, host string, n int, end time.Time, refused, unanswered *atomic.Int64) error {
	c, err := tls.Dial("tcp", address, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return nil // this process is the last to get a processor, and the handshake took too long
	}
	defer c.Close()
	_ = c.SetDeadline(end.Add(time.Minute))
	var sent, got atomic.Int64
	underway := make(chan struct{}, 50)
	go func() {
		line := fmt.Appendf(nil, "GET /closed/%d HTTP/1.1\r\nHost: %s\r\n\r\n", n, host)
		last := fmt.Appendf(nil, "GET /closed/last HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		for time.Now().Before(end) {
			batch := bytes.Clone(line)
			for underway <- struct{}{}; len(underway) < cap(underway); underway <- struct{}{} {
				batch = append(batch, line...)
			}
			sent.Add(int64(len(batch) / len(line)))
			if _, err := c.Write(batch); err != nil {
				return
			}
		}
		sent.Add(1)
		_, _ = c.Write(last) // then it is not answered
	}()
	for r := bufio.NewReaderSize(c, 64<<10); ; got.Add(1) {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			unanswered.Add(sent.Load() - got.Load())
			return nil
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.Header.Get("X-Sallyport-Reason") == "path_not_allowed" {
			refused.Add(1)
		}
		select {
		case <-underway:
		default: // the last
		}
	}
}

// streams sends requests on one HTTP/2 connection, 200 at a time.
func streams(address, host string, n int, end time.Time, refused, unanswered *atomic.Int64) {
	var p http.Protocols
	p.SetHTTP2(true)
	tr := &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			for time.Now().Before(end) {
				req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://%s/shut/%d", host, n), nil)
				if err != nil {
					return
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					fmt.Fprintln(os.Stderr, "flood:", err)
					unanswered.Add(1)
					continue
				}
				if _, err := io.Copy(io.Discard, resp.Body); err == nil && resp.Header.Get("X-Sallyport-Reason") == "path_not_allowed" {
					refused.Add(1)
				} else {
					unanswered.Add(1)
				}
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
}
