package syslog

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
)

func notice() audit.Alert {
	return audit.Alert{ID: "01", Name: "exfiltration", State: audit.Firing, Severity: audit.Critical, Count: 2, LastSeen: time.Unix(1700000000, 123456000),
		Message: "leak\n<0>1 forged", Event: &audit.Event{Host: `a"]\b`, Reason: "placeholder_leak", Sandbox: &audit.Sandbox{Name: "ci\x00\x1b"}}}
}

// receive accepts one connection and returns its messages, as octet counting
// frames them.
func receive(t *testing.T, l net.Listener) chan []string {
	t.Helper()
	got := make(chan []string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var list []string
		r := bufio.NewReader(conn)
		for {
			size, err := r.ReadString(' ')
			if err != nil {
				break
			}
			n, err := strconv.Atoi(strings.TrimSpace(size))
			if err != nil {
				t.Errorf("frame %q", size)
				break
			}
			msg := make([]byte, n)
			if _, err := io.ReadFull(r, msg); err != nil {
				t.Error(err)
			}
			list = append(list, string(msg))
		}
		got <- list
	}()
	return got
}

var form = regexp.MustCompile(`^<(\d{1,3})>1 (\S+) (\S+) (\S+) (\S+) (\S+) (\[[^ \]]+(?: [a-z]+="(?:[^"\\\]]|\\["\\\]])*")*\]) (.*)$`)

func TestSend(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	pool := x509.NewCertPool()
	pool.AddCert(cert.Certificate())
	for name, secure := range map[string]bool{"tcp": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c := Config{Address: l.Addr().String(), Hostname: "gate way"}
			if secure {
				l = tls.NewListener(l, &tls.Config{Certificates: cert.TLS.Certificates})
				c.TLS = &tls.Config{RootCAs: pool, ServerName: "example.com"}
			}
			got := receive(t, l)
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(t.Context(), notice()); err != nil {
				t.Fatal(err)
			}
			list := <-got
			if len(list) != 1 {
				t.Fatalf("messages %q", list)
			}
			m := form.FindStringSubmatch(list[0])
			if m == nil {
				t.Fatalf("message %q is not RFC 5424", list[0])
			}
			if m[1] != "106" || m[2] != "2023-11-14T22:13:20.123456Z" || m[3] != "gateway" || m[4] != "sallyport" || m[6] != "ALERT" {
				t.Errorf("header %q", m[1:7])
			}
			if !strings.Contains(m[7], `host="a\"\]\\\\b"`) || !strings.Contains(m[7], `alert="exfiltration"`) {
				t.Errorf("data %s", m[7])
			}
			if strings.ContainsAny(list[0], "\n\x00\x1b") || !strings.HasSuffix(m[8], `leak\n<0>1 forged`) {
				t.Errorf("text %q", m[8])
			}
		})
	}
}

func TestReceiverThatResets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}()
	s, err := New(Config{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), notice()); err == nil {
		t.Error("a notice to a receiver that resets was accepted")
	}
}

func TestReceiverThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := New(Config{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Send(ctx, notice()); err == nil {
		t.Error("a notice to a receiver that hangs was accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{{}, {Address: "host"}, {Address: "127.0.0.1:514", Facility: 24}, {Address: "127.0.0.1:514", Facility: -1}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
