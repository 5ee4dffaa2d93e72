//go:build linux

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"

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
