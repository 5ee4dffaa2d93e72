// Package syslog sends notices of alerts as RFC 5424 messages over TCP (RFC
// 6587, octet counting) or TLS (RFC 5425).
package syslog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"sallyport/audit"
)

// Config of a Sink. Address is required.
type Config struct {
	Address  string      // host:port
	TLS      *tls.Config // nil is plain TCP
	Facility int         // 0 is 13, log audit (RFC 5424, section 6.2.1)
	Hostname string      // "" is that of the machine
	App      string      // "" is sallyport
}

// Sink is a syslog receiver.
type Sink struct{ c Config }

// New returns a Sink.
func New(c Config) (*Sink, error) {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return nil, fmt.Errorf("syslog: address: %w", err)
	}
	if c.Facility < 0 || c.Facility > 23 {
		return nil, fmt.Errorf("syslog: facility %d: want 0 to 23", c.Facility)
	}
	if c.Facility == 0 {
		c.Facility = 13
	}
	if c.Hostname == "" {
		c.Hostname, _ = os.Hostname()
	}
	if c.App == "" {
		c.App = "sallyport"
	}
	return &Sink{c: c}, nil
}

// halfCloser is a connection whose writing side can be closed.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// Send sends the notice on a connection of its own. The protocol has no
// acknowledgement; what comes closest is that the receiver, after it has read
// to the end, closes its side in order, and for that Send waits.
func (s *Sink) Send(ctx context.Context, a audit.Alert) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	msg := s.message(a)
	if _, err := io.WriteString(conn, strconv.Itoa(len(msg))+" "+msg); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(conn, 4<<10)); err != nil {
		return fmt.Errorf("the receiver did not close in order: %w", err)
	}
	return nil
}

func (s *Sink) dial(ctx context.Context) (halfCloser, error) {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if s.c.TLS == nil {
		conn, err := d.DialContext(ctx, "tcp", s.c.Address)
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			conn.Close()
			return nil, errors.New("connection is not TCP")
		}
		return tcp, nil
	}
	conn, err := (&tls.Dialer{NetDialer: d, Config: s.c.TLS}).DialContext(ctx, "tcp", s.c.Address)
	if err != nil {
		return nil, err
	}
	t, ok := conn.(*tls.Conn)
	if !ok {
		conn.Close()
		return nil, errors.New("connection is not TLS")
	}
	return t, nil
}

// message is the RFC 5424 message of a notice: printable ASCII but for what
// audit.Escape lets stand.
func (s *Sink) message(a audit.Alert) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<%d>1 %s %s %s %d %s ", s.c.Facility*8+level(a), a.LastSeen.UTC().Format("2006-01-02T15:04:05.000000Z"),
		name(s.c.Hostname, 255), name(s.c.App, 48), os.Getpid(), "ALERT")
	b.WriteString("[sallyport@32473")
	param(&b, "id", a.ID)
	param(&b, "alert", a.Name)
	param(&b, "state", a.State)
	param(&b, "severity", string(a.Severity))
	param(&b, "count", strconv.FormatUint(a.Count, 10))
	if e := a.Event; e != nil {
		if e.Sandbox != nil {
			param(&b, "sandbox", e.Sandbox.Name)
		}
		param(&b, "host", e.Host)
		param(&b, "reason", e.Reason)
	}
	b.WriteString("] \xef\xbb\xbf") // the mark that what follows is UTF-8
	b.WriteString(audit.Escape(a.Message, 1024))
	return b.String()
}

// param is one parameter of structured data (section 6.3.3).
func param(b *strings.Builder, name, value string) {
	if value != "" {
		b.WriteString(" " + name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `]`, `\]`).Replace(audit.Escape(value, 256)) + `"`)
	}
}

// name is a header field: printable ASCII without spaces.
func name(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x21 || r > 0x7e {
			return -1
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), limit)]
}

// level is the severity (section 6.2.1).
func level(a audit.Alert) int {
	if a.State == audit.Resolved {
		return 5 // notice
	}
	switch a.Severity {
	case audit.Critical:
		return 2
	case audit.High:
		return 3
	case audit.Medium:
		return 4
	case audit.Low:
		return 5
	}
	return 6
}
