package http1

import (
	"net/http"
	"testing"
)

func TestHeadOf(t *testing.T) {
	for _, c := range []struct {
		name string
		head Head
		r    http.Request
		want bool
	}{
		{"the same", Head{Method: "GET", Target: "/a?b"}, http.Request{Method: "GET", RequestURI: "/a?b"}, true},
		{"escaped for the server", Head{Method: "GET", Target: "/%zz"}, http.Request{Method: "GET", RequestURI: "/%25zz"}, true},
		{"stand-in of CONNECT", Head{Method: "CONNECT", Target: "/", Authority: "a.test:443"}, http.Request{Method: "GET", RequestURI: "/"}, true},
		{"another method", Head{Method: "GET", Target: "/a"}, http.Request{Method: "DELETE", RequestURI: "/a"}, false},
		{"another target", Head{Method: "OPTIONS", Target: "*"}, http.Request{Method: "OPTIONS", RequestURI: "/"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.head.Of(&c.r); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
