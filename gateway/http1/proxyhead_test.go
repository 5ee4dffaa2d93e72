package http1

import (
	"strings"
	"testing"
)

func TestParseConnect(t *testing.T) {
	for _, c := range []struct{ name, head, target, detail string }{
		{"plain", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", "a.test:443", ""},
		{"HTTP/1.0 without Host", "CONNECT a.test:443 HTTP/1.0\r\n\r\n", "a.test:443", ""},
		{"length of nothing", "CONNECT a.test:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "a.test:443", ""},
		{"another method", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", "the request is no CONNECT"},
		{"body", "CONNECT a.test:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", "", "CONNECT with a body"},
		{"no Host", "CONNECT a.test:443 HTTP/1.1\r\n\r\n", "", "no Host field"},
		{"bare LF", "CONNECT a.test:443 HTTP/1.1\nHost: a\r\n\r\n", "", "bare LF in the request head"},
		{"NUL", "CONNECT a.test:443 HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", "", "control character in the request head"},
		{"no end", "CONNECT a.test:443 HTTP/1.1\r\nHost: a\r\n", "", "the request head has no end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, v := ParseConnect([]byte(c.head), 0)
			if v == nil && (c.detail != "" || got.Target != c.target) || v != nil && v.Detail != c.detail {
				t.Errorf("target %q, violation %v", got.Target, v)
			}
		})
	}
	c, v := ParseConnect([]byte("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nX-a:  one \r\nx-A: two\r\n\r\n"), 0)
	if v != nil || strings.Join(c.Values("x-a"), "|") != "one|two" || c.Values("none") != nil {
		t.Errorf("values %q, %v", c.Values("x-a"), v)
	}
}

func FuzzParseConnect(f *testing.F) {
	f.Add([]byte("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic eDp5\r\n\r\n"))
	f.Add([]byte("CONNECT [::1]:443 HTTP/1.0\r\n\r\n"))
	f.Add([]byte("CONNECT a HTTP/1.1\r\n\r\n\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, v := ParseConnect(b, 0)
		if v != nil {
			return
		}
		if !strings.HasPrefix(string(b), "CONNECT "+c.Target+" HTTP/1.") {
			t.Errorf("target %q of %q", c.Target, b)
		}
		for _, value := range append(c.Values("host"), c.Values("proxy-authorization")...) {
			if strings.ContainsAny(value, "\r\n\x00") {
				t.Errorf("value %q of %q", value, b)
			}
		}
	})
}
