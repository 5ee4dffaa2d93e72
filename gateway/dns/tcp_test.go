package dns

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// TestTCPEndsAreReported: what begins over TCP and does not come whole is
// reported once, and so is a connection without a byte. One that ends between
// two messages has said all.
func TestTCPEndsAreReported(t *testing.T) {
	question := framed(wire(t, "good.test.", dns.TypeA))
	tests := []struct {
		name string
		send []byte
		want error
	}{
		{"nothing", nil, ErrSilent},
		{"half a length", question[:1], ErrBroken},
		{"a length alone", question[:2], ErrBroken},
		{"a part of a question", question[:20], ErrBroken},
		{"a part of a second question", append(bytes.Clone(question), question[:20]...), ErrBroken},
		{"half a second length", append(bytes.Clone(question), 0), ErrBroken},
		{"a length of nothing", []byte{0, 0}, ErrShort},
		{"too long", []byte{0xff, 0xff}, ErrTooLong},
		{"a question", question, nil},
		{"two questions", append(bytes.Clone(question), question...), nil},
	}
	for _, tt := range tests {
		for _, how := range []string{"closed", "left open", "cut by the server"} {
			t.Run(tt.name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var got []error
					s := NewServer(leaseHandler, Options{Malformed: func(_ context.Context, m Malformed) {
						if got = append(got, m.Err); !m.Dropped || m.Transport != TransportTCP {
							t.Errorf("reported %+v", m)
						}
					}})
					ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error)
					go func() { ended <- s.ServeTCP(ctx, ln) }()
					client, server := net.Pipe()
					ln.conns <- server
					go io.Copy(io.Discard, client)
					client.Write(tt.send)
					synctest.Wait()
					switch how {
					case "closed":
						client.Close()
					case "left open":
						time.Sleep(time.Minute)
					}
					synctest.Wait()
					cancel()
					if err := <-ended; err != nil {
						t.Error(err)
					}
					client.Close()
					want := tt.want
					if want == ErrSilent && how != "left open" {
						want = ErrUnused
					}
					if want == nil && len(got) > 0 || want != nil && (len(got) != 1 || !errors.Is(got[0], want)) {
						t.Errorf("reported %v, want %v", got, want)
					}
				})
			})
		}
	}
}
