package dns

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

func TestQuestion(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := label + "." + label + "." + label + "." + strings.Repeat("b", 61) // 255 bytes on the wire
	tests := []struct {
		name, wire string // in presentation form
		want, host string
	}{
		{"plain", "good.test.", "good.test", "good.test"},
		{"case", "GoOd.TeSt.", "GoOd.TeSt", "good.test"},
		{"underscore", "_acme.good.test.", "_acme.good.test", "_acme.good.test"},
		{"A-label", "xn--bcher-kva.test.", "xn--bcher-kva.test", "xn--bcher-kva.test"},
		{"longest", longest + ".", longest, longest},
		{"root", ".", ".", ""},
		{"dot in a label", `good\.test.`, `good\.test`, ""},
		{"dot in a label looks like a border", `x.good\.test.evil.test.`, `x.good\.test.evil.test`, ""},
		{"NUL", `good.test\000.evil.test.`, `good.test\000.evil.test`, ""},
		{"backslash", `a\\b.test.`, `a\\b.test`, ""},
		{"space", `a\ b.test.`, `a\032b.test`, ""},
		{"high bytes", `b\195\188cher.test.`, `b\195\188cher.test`, ""},
		{"slash", "a/b.test.", "a/b.test", ""},
		{"percent", "a%00.test.", "a%00.test", ""},
		{"IPv4 literal", "192.0.2.1.", "192.0.2.1", ""},
		{"IPv6 literal", "2001:db8::1.", "2001:db8::1", ""},
		{"bracketed literal", "[2001:db8::1].", "[2001:db8::1]", ""},
		{"number", "a.127.", "a.127", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got Question
			s := NewServer(func(_ context.Context, q Question) Answer { got = q; return Answer{} }, Options{})
			exchange(t, s, TransportTCP, wire(t, tt.wire, dns.TypeHTTPS))
			if got.Name != tt.want || got.Host != tt.host || (got.Bad == nil) != (tt.host != "") {
				t.Errorf("name %q, host %q, bad %v; want %q, %q", got.Name, got.Host, got.Bad, tt.want, tt.host)
			}
			if got.TypeName != "HTTPS" || got.Transport != TransportTCP || got.Peer != testPeer || got.Resolver != testResolver {
				t.Errorf("question %+v", got)
			}
		})
	}
	if got := typeName(65280); got != "TYPE65280" {
		t.Errorf("name of an unknown type %q", got)
	}
}

// raw returns a header with these flags and counts, and the rest behind it.
func raw(flags uint16, counts [4]uint8, rest string) []byte {
	b := []byte{0xBE, 0xEF, byte(flags >> 8), byte(flags), 0, counts[0], 0, counts[1], 0, counts[2], 0, counts[3]}
	return append(b, rest...)
}

func TestDNS15MalformedMessages(t *testing.T) {
	const (
		good = "\x04good\x04test\x00\x00\x01\x00\x01"
		opt  = "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
	)
	label := "\x3f" + strings.Repeat("a", 63)
	one := [4]uint8{1, 0, 0, 0}
	tests := []struct {
		name   string
		msg    []byte
		err    error
		rcode  int // -1 is no answer
		echoed bool
	}{
		{"empty", nil, ErrShort, -1, false},
		{"11 bytes", make([]byte, 11), ErrShort, -1, false},
		{"response", raw(0x8000, one, good), ErrResponse, -1, false},
		{"response without a question", raw(0xFFFF, [4]uint8{}, ""), ErrResponse, -1, false},
		{"IQUERY", raw(1<<11, one, good), ErrOpcode, dns.RcodeNotImplemented, false},
		{"NOTIFY", raw(4<<11, one, good), ErrOpcode, dns.RcodeNotImplemented, false},
		{"UPDATE", raw(5<<11, one, good), ErrOpcode, dns.RcodeNotImplemented, false},
		{"no question", raw(0, [4]uint8{}, ""), ErrCount, dns.RcodeFormatError, false},
		{"two questions", raw(0, [4]uint8{2, 0, 0, 0}, good+good), ErrCount, dns.RcodeFormatError, false},
		{"64 KiB of zeros", make([]byte, 65535), ErrCount, dns.RcodeFormatError, false},
		{"question missing", raw(0, one, ""), ErrName, dns.RcodeFormatError, false},
		{"pointer to itself", raw(0, one, "\xc0\x0c\x00\x01\x00\x01"), ErrName, dns.RcodeFormatError, false},
		{"pointer past the end", raw(0, one, "\xff\xff\x00\x01\x00\x01"), ErrName, dns.RcodeFormatError, false},
		{"pointer into the header", raw(0, one, "\xc0\x04\x00\x01\x00\x01"), ErrName, dns.RcodeFormatError, false},
		{"pointer behind a label", raw(0, one, "\x01a\xc0\x0c\x00\x01\x00\x01"), ErrName, dns.RcodeFormatError, false},
		{"label type 0x40", raw(0, one, "\x40"+strings.Repeat("a", 64)+"\x00\x00\x01\x00\x01"), ErrName, dns.RcodeFormatError, false},
		{"label type 0x80", raw(0, one, "\x80a\x00\x00\x01\x00\x01"), ErrName, dns.RcodeFormatError, false},
		{"label past the end", raw(0, one, "\x3fabc"), ErrName, dns.RcodeFormatError, false},
		{"no root label", raw(0, one, "\x04good"), ErrName, dns.RcodeFormatError, false},
		{"name of 256 bytes", raw(0, one, label+label+label+"\x3e"+strings.Repeat("b", 62)+"\x00\x00\x01\x00\x01"), ErrName, dns.RcodeFormatError, false},
		{"type cut off", raw(0, one, "\x04good\x00\x00"), ErrName, dns.RcodeFormatError, false},
		{"class cut off", raw(0, one, "\x04good\x00\x00\x01\x00"), ErrName, dns.RcodeFormatError, false},
		{"bytes behind the end", raw(0, one, good+"x"), ErrRecord, dns.RcodeFormatError, true},
		{"record missing", raw(0, [4]uint8{1, 0, 0, 1}, good), ErrRecord, dns.RcodeFormatError, true},
		{"record data longer than the message", raw(0, [4]uint8{1, 0, 0, 1}, good+"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\xff\xff"), ErrRecord, dns.RcodeFormatError, true},
		{"record name of type 0x40", raw(0, [4]uint8{1, 0, 0, 1}, good+"\x40a\x00"+opt[1:]), ErrRecord, dns.RcodeFormatError, true},
		{"two OPT", raw(0, [4]uint8{1, 0, 0, 2}, good+opt+opt), ErrEDNS, dns.RcodeFormatError, true},
		{"OPT with a name", raw(0, [4]uint8{1, 0, 0, 1}, good+"\x01a"+opt), ErrEDNS, dns.RcodeFormatError, true},
		{"OPT among the answers", raw(0, [4]uint8{1, 1, 0, 0}, good+opt), ErrEDNS, dns.RcodeFormatError, true},
		{"class CH", raw(0, one, "\x07version\x04bind\x00\x00\x10\x00\x03"), ErrClass, dns.RcodeRefused, true},
		{"class ANY", raw(0, one, "\x04good\x04test\x00\x00\x01\x00\xff"), ErrClass, dns.RcodeRefused, true},
		{"AXFR", raw(0, one, "\x04good\x04test\x00\x00\xfc\x00\x01"), ErrTransfer, dns.RcodeRefused, true},
		{"IXFR", raw(0, one, "\x04good\x04test\x00\x00\xfb\x00\x01"), ErrTransfer, dns.RcodeRefused, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var seen []Malformed
			s := NewServer(func(context.Context, Question) Answer {
				t.Error("was put to the handler")
				return Answer{}
			}, Options{Malformed: func(_ context.Context, m Malformed) { seen = append(seen, m) }})
			for _, transport := range []string{TransportUDP, TransportTCP} {
				seen = nil
				m := exchange(t, s, transport, tt.msg)
				if len(seen) != 1 || !errors.Is(seen[0].Err, tt.err) || seen[0].Dropped != (tt.rcode < 0) || seen[0].Peer != testPeer {
					t.Fatalf("reported %+v, want one with %v", seen, tt.err)
				}
				if tt.rcode < 0 {
					if m != nil {
						t.Errorf("answered: %v", m)
					}
					continue
				}
				if m == nil || m.Rcode != tt.rcode || seen[0].RCode != tt.rcode || m.Id != 0xBEEF && tt.err != ErrCount {
					t.Fatalf("answer %v, want rcode %d", m, tt.rcode)
				}
				if (len(m.Question) == 1) != tt.echoed || len(m.Answer)+len(m.Ns) != 0 {
					t.Errorf("answer %v, question echoed want %v", m, tt.echoed)
				}
				if tt.echoed && (seen[0].Name == "" || seen[0].TypeName == "") {
					t.Errorf("reported without its name: %+v", seen[0])
				}
			}
		})
	}
}

// TestDNS15Mutations turns a good question into a great many bad ones.
func TestDNS15Mutations(t *testing.T) {
	s := NewServer(leaseHandler, Options{})
	good := wire(t, "www.good.test.", dns.TypeA, withEDNS(1232))
	src := source{TransportUDP, testPeer, testResolver}
	r := rand.New(rand.NewPCG(15, 9267))
	var out []byte
	for range 200_000 {
		msg := bytes.Clone(good)
		for range 1 + r.IntN(4) {
			msg[r.IntN(len(msg))] = byte(r.Uint32())
		}
		msg = msg[:len(msg)-r.IntN(2)*r.IntN(len(msg))]
		out = s.respond(t.Context(), src, msg, out)
		if out == nil {
			continue
		}
		if err := checkAnswer(msg, out); err != nil {
			t.Fatalf("%x: %v", msg, err)
		}
	}
	if m := exchange(t, s, TransportUDP, good); len(m.Answer) != 1 {
		t.Errorf("good question afterwards: %v", m)
	}
}

func TestDNS15SkippedRecordsMayBeAnything(t *testing.T) {
	s := NewServer(leaseHandler, Options{})
	msg := raw(0, [4]uint8{1, 1, 1, 2}, "\x04good\x04test\x00\x00\x01\x00\x01"+
		"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x00\x00\x02\xc0\x21"+ // CNAME to itself
		"\xc0\xff\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00"+ // owner past the end
		"\x03key\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x03abc"+ // TSIG
		"\x00\x00\x29\x10\x00\x00\x00\x80\x00\x00\x02zz") // OPT with half an option
	m := exchange(t, s, TransportUDP, msg)
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 || m.IsEdns0() == nil {
		t.Errorf("answer: %v", m)
	}
	if diff := cmp.Diff([]dns.EDNS0(nil), m.IsEdns0().Option); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}
