//go:build linux

package capture

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkExchange sends 1 KiB there and back over connections out of 1 and out
// of many namespaces, one after the other. What is measured is the kernel.
func BenchmarkExchange(b *testing.B) {
	for _, n := range []int{1, 300} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var clients, servers []int
			for range n {
				client, server := exchange(b)
				clients, servers = append(clients, client), append(servers, server)
			}
			message, other := make([]byte, 1024), make([]byte, 1<<20)
			i := 0
			for b.Loop() {
				for at := 0; at < len(other); at += 64 {
					other[at]++ // what the gateway does between
				}
				for _, ends := range [][2]int{{clients[i%n], servers[i%n]}, {servers[i%n], clients[i%n]}} {
					if _, err := unix.Write(ends[0], message); err != nil {
						b.Fatal(err)
					}
					if got, err := unix.Read(ends[1], message); err != nil || got != len(message) {
						b.Fatal(got, err)
					}
				}
				i++
			}
		})
	}
}

// exchange opens a connection in a captured namespace and returns both ends.
func exchange(b *testing.B) (client, server int) {
	b.Helper()
	ns := newNamespace(b)
	s, err := OpenNamespace(namespacePath(ns), NamespaceOptions{Interface: "test"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	var dialed net.Conn
	if err := inNamespace(ns, func() (err error) {
		dialed, err = net.Dial("tcp", "198.51.100.7:443")
		return err
	}); err != nil {
		b.Fatal(err)
	}
	accepted, err := s.TCP[0].Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dialed.Close(); accepted.Close() })
	return numberOf(b, dialed), numberOf(b, accepted)
}

func numberOf(b *testing.B, c net.Conn) (fd int) {
	b.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	if err != nil {
		b.Fatal(err)
	}
	return fd
}
