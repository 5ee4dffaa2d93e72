//go:build linux

package lab

import (
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// ADNS is the scripted authority of the lab, and the log of what it was asked.
// A name below .test that has no script has the address of the origin.
type ADNS struct {
	mu      sync.Mutex
	scripts map[string]Script
	asked   []Question
	servers []*dns.Server
}

// Question is one question that reached the net.
type Question struct {
	Server    string // address that was asked
	Transport string
	Name      string // as sent
	Type      uint16
	Options   []dns.EDNS0
}

// Script answers a question: q is the question, m an answer without records.
type Script func(q dns.Question, m *dns.Msg)

// newADNS serves on the resolver's address and on those of public resolvers,
// which nobody should ask.
func newADNS(n *Namespace) (*ADNS, error) {
	a := &ADNS{scripts: map[string]Script{}}
	for _, ip := range []string{Resolver, "8.8.8.8", "1.1.1.1"} {
		err := n.Do(func() error {
			p, err := net.ListenPacket("udp", net.JoinHostPort(ip, "53"))
			if err != nil {
				return err
			}
			t, err := net.Listen("tcp", net.JoinHostPort(ip, "53"))
			if err != nil {
				return err
			}
			a.servers = append(a.servers,
				&dns.Server{PacketConn: p, Handler: a.handler(ip, "udp")},
				&dns.Server{Listener: t, Handler: a.handler(ip, "tcp")})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, s := range a.servers {
		go func() { _ = s.ActivateAndServe() }() // ends with close
	}
	return a, nil
}

func (a *ADNS) close() {
	for _, s := range a.servers {
		_ = s.Shutdown() // nothing depends on it
	}
}

// Set makes name answer with the records, each in zone file form without its
// name and class, as "60 A 10.0.0.5".
func (a *ADNS) Set(name string, records ...string) {
	var rrs []dns.RR
	for _, r := range records {
		rr, err := dns.NewRR(dns.Fqdn(name) + " " + r)
		if err != nil {
			panic(err) // a test's own text
		}
		rrs = append(rrs, rr)
	}
	a.Script(name, func(q dns.Question, m *dns.Msg) {
		for _, rr := range rrs {
			if t := rr.Header().Rrtype; t == q.Qtype || t == dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
		}
	})
}

// Script makes f answer questions for name.
func (a *ADNS) Script(name string, f Script) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scripts[strings.ToLower(dns.Fqdn(name))] = f
}

// Asked returns the questions for names that contain part, in any case.
func (a *ADNS) Asked(part string) []Question {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Question
	for _, q := range a.asked {
		if strings.Contains(strings.ToLower(q.Name), strings.ToLower(part)) {
			out = append(out, q)
		}
	}
	return out
}

// Public returns the questions that reached a public resolver.
func (a *ADNS) Public() []Question {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.asked), func(q Question) bool { return q.Server == Resolver })
}

func (a *ADNS) handler(server, transport string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Authoritative = true
		if len(r.Question) == 1 {
			a.answer(server, transport, r, m)
		}
		if transport == "udp" {
			size := dns.MinMsgSize
			if o := r.IsEdns0(); o != nil {
				size = max(size, int(o.UDPSize()))
			}
			m.Truncate(size)
		}
		_ = w.WriteMsg(m) // the gateway may have gone
	}
}

func (a *ADNS) answer(server, transport string, r, m *dns.Msg) {
	q := r.Question[0]
	asked := Question{Server: server, Transport: transport, Name: q.Name, Type: q.Qtype}
	if o := r.IsEdns0(); o != nil {
		asked.Options = o.Option
	}
	a.mu.Lock()
	a.asked = append(a.asked, asked)
	script := a.scripts[strings.ToLower(q.Name)]
	a.mu.Unlock()
	switch {
	case script != nil:
		script(q, m)
	case !strings.HasSuffix(strings.ToLower(q.Name), ".test."):
		m.Rcode = dns.RcodeNameError
	case q.Qtype == dns.TypeA:
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(Origin)}}
	}
}
