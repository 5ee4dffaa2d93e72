//go:build linux

package e2e_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"

	"sallyport/test/lab"
)

// echoLine answers one line with itself.
func echoLine(p *lab.Peer, c *net.TCPConn) {
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil {
		p.Hear([]byte(line))
		_, _ = fmt.Fprintf(c, "echo %s", line) // the other side may have gone
	}
}

// echoAll sends everything back until the other side ends.
func echoAll(_ *lab.Peer, c *net.TCPConn) { _, _ = io.Copy(c, c) }

// echoTLS is echoAll with TLS as host.
func echoTLS(t *testing.T, host string) func(*lab.Peer, *net.TCPConn) {
	t.Helper()
	leaf, err := world.lab.Origins.CA.Leaf(host, nil)
	must(t, err)
	return func(_ *lab.Peer, c *net.TCPConn) {
		tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*leaf}})
		_, _ = io.Copy(tc, tc)
	}
}
