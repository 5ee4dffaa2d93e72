package dns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// checkAnswer holds what is true of every answer to msg.
func checkAnswer(msg, out []byte) error {
	if len(msg) < headerLen || msg[2]&0x80 != 0 {
		return errors.New("a response or a fragment was answered")
	}
	if !bytes.Equal(out[:2], msg[:2]) || out[2]&0x80 == 0 || out[2]&0x78 != msg[2]&0x78 || out[2]&1 != msg[2]&1 {
		return fmt.Errorf("header %x does not answer %x", out[:headerLen], msg[:headerLen])
	}
	q := query{end: headerLen}
	switch binary.BigEndian.Uint16(out[4:]) {
	case 0:
	case 1:
		nameEnd, ok := skipQuestionName(out)
		if !ok {
			return errors.New("question of the answer is malformed")
		}
		q.end = nameEnd + 4
		if !bytes.Equal(out[headerLen:q.end], msg[headerLen:q.end]) {
			return errors.New("question was not echoed")
		}
	default:
		return errors.New("answer has several questions")
	}
	if err := q.skipRecords(out); err != nil {
		return fmt.Errorf("answer %x: %w", out, err)
	}
	if err := new(dns.Msg).Unpack(out); err != nil {
		return fmt.Errorf("answer %x: %w", out, err)
	}
	return nil
}

// FuzzQuestion puts hostile bytes to the wire parser and compares what it
// makes of them with what miekg/dns does.
func FuzzQuestion(f *testing.F) {
	f.Add(wire(f, "good.test.", dns.TypeA), true)
	f.Add(wire(f, "GoOd.test.", dns.TypeAAAA, withEDNS(4096)), false)
	f.Add(wire(f, `a\.b\000.test.`, dns.TypeANY), true)
	f.Add(wire(f, ".", dns.TypeNS, func(m *dns.Msg) { m.SetEdns0(512, true); m.IsEdns0().SetVersion(3) }), true)
	f.Add(wire(f, "1.0.18.198.in-addr.arpa.", dns.TypePTR), true)
	f.Add(wire(f, "good.test.", dns.TypeIXFR, func(m *dns.Msg) { m.SetIxfr("good.test.", 1, "a.", "b.") }), false)
	f.Add(raw(0, [4]uint8{1, 0, 0, 0}, "\xc0\x0c\x00\x01\x00\x01"), true)
	f.Add(raw(0x8180, [4]uint8{1, 0, 0, 0}, "\x04good\x00\x00\x01\x00\x01"), true)
	f.Add(make([]byte, 11), false)
	s := NewServer(leaseHandler, Options{})
	f.Fuzz(func(t *testing.T, msg []byte, stream bool) {
		src, limit := source{TransportUDP, testPeer, testResolver}, MaxUDPBytes
		if stream {
			src.transport, limit = TransportTCP, 65535
		}
		before := bytes.Clone(msg)
		out := s.respond(t.Context(), src, msg, nil)
		if !bytes.Equal(before, msg) {
			t.Fatal("message was changed")
		}
		if out != nil {
			if err := checkAnswer(msg, out); err != nil {
				t.Fatal(err)
			}
			if len(out) > limit {
				t.Fatalf("answer of %d bytes, limit %d", len(out), limit)
			}
		}
		comparePeer(t, msg)
	})
}

// comparePeer requires that parse and miekg/dns agree on a message that both
// accept, and that parse has a reason of its own for one it alone refuses.
func comparePeer(t *testing.T, msg []byte) {
	q, f := parse(msg)
	var peer dns.Msg
	err := peer.Unpack(msg)
	name, off, err2 := dns.UnpackDomainName(msg, min(headerLen, len(msg)))
	if f.err != nil {
		// The other faults miekg/dns leaves to its caller, and a question
		// without type and class it takes.
		if errors.Is(f.err, ErrName) && err2 == nil && off+4 <= len(msg) && bytes.IndexFunc(msg[headerLen:off], isPointer) < 0 {
			t.Fatalf("%x: %v, but miekg/dns reads %q", msg, f.err, name)
		}
		return
	}
	if err2 != nil {
		t.Fatalf("%x: accepted, but miekg/dns says %v", msg, err2)
	}
	mine, plain := presentation(msg[headerLen:q.nameEnd])
	want := strings.ReplaceAll(strings.TrimSuffix(name, "."), `\ `, `\032`) // a space is a matter of taste
	if off != q.nameEnd || mine != want && name != "." {
		t.Fatalf("%x: name %q to %d, miekg/dns says %q to %d", msg, mine, q.nameEnd, want, off)
	}
	if plain == strings.ContainsRune(mine, '\\') {
		t.Fatalf("name %q, plain %v", mine, plain)
	}
	if err != nil { // inside the data of a record that parse skips
		return
	}
	if peer.Question[0].Qtype != q.qtype || (peer.IsEdns0() != nil) != q.edns {
		t.Fatalf("%x: %+v, miekg/dns says %v", msg, q, &peer)
	}
	if opt := peer.IsEdns0(); opt != nil && (opt.UDPSize() != q.size || opt.Version() != q.version) {
		t.Fatalf("%x: %+v, miekg/dns says %v", msg, q, opt)
	}
}

// isPointer reports whether r may be the first byte of a pointer; also a byte
// that is no rune is.
func isPointer(r rune) bool { return r >= 0x80 }
