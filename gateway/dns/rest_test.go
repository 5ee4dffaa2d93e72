package dns

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// restTime is Options.Rest of these tests.
const restTime = 30 * time.Millisecond

func TestASocketRestsWhenNothingComesAndNothingIsToBeAnswered(t *testing.T) {
	slow, taken := make(chan struct{}), make(chan struct{})
	s := NewServer(func(ctx context.Context, q Question) Answer { close(taken); <-slow; return leaseHandler(ctx, q) }, Options{Rest: restTime})
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	serve := func(ctx context.Context) error { return s.ServePackets(ctx, udpSocket{conn}) }
	if err := serve(t.Context()); err != ErrRest {
		t.Fatalf("ended with %v, want ErrRest", err)
	}
	answered := make(chan error, 1)
	m := new(dns.Msg).SetQuestion("good.test.", dns.TypeA)
	go func() {
		_, _, err := (&dns.Client{Timeout: 20 * time.Second}).Exchange(m, conn.LocalAddr().String())
		answered <- err
	}()
	ended := make(chan error, 1)
	for begun := false; !begun; {
		go func() { ended <- serve(t.Context()) }()
		select {
		case <-taken:
			begun = true
		case err := <-ended: // the question was not there yet
			if err != ErrRest {
				t.Fatalf("ended with %v, want ErrRest", err)
			}
		case err := <-answered:
			t.Fatalf("it was not taken: %v", err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("ended with %v while a question was decided", err)
	case <-time.After(5 * restTime):
	}
	close(slow)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != ErrRest {
		t.Errorf("ended with %v, want ErrRest", err)
	}
}

func TestAListenerRestsWhenNoConnectionIsOpen(t *testing.T) {
	s := NewServer(leaseHandler, Options{Rest: restTime})
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	serve := func(ctx context.Context) error { return s.ServeTCP(ctx, ln) }
	for range 2 {
		conn, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- serve(t.Context()) }()
		time.Sleep(5 * restTime)
		c := &dns.Conn{Conn: conn}
		if err := c.WriteMsg(new(dns.Msg).SetQuestion("good.test.", dns.TypeA)); err != nil {
			t.Error(err)
		}
		if m, err := c.ReadMsg(); err != nil || len(m.Answer) != 1 {
			t.Errorf("%v, %v", m, err)
		}
		conn.Close()
		if err := <-ended; err != ErrRest {
			t.Fatalf("ended with %v, want ErrRest", err)
		}
	}
}
