package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// Bits of the second header word (RFC 1035 section 4.1.1, RFC 4035 section 3).
const (
	flagQR     = 1 << 15
	flagTC     = 1 << 9
	flagRD     = 1 << 8
	flagRA     = 1 << 7
	flagCD     = 1 << 4
	maskOpcode = 0xF << 11
)

// query is where the parts of a message are. It refers to the message's bytes
// by offset, so taking one apart allocates nothing.
type query struct {
	nameEnd int // of the question's name, which begins after the header
	end     int // of the question section; 0: nothing to echo
	qtype   uint16
	edns    bool
	version uint8
	size    uint16 // the client's EDNS size in bytes (RFC 6891 section 6.2.3)
}

// fault is why a message is not put to the Handler, and what it is answered.
// The zero value is no fault.
type fault struct {
	err   error
	rcode int
	drop  bool
}

// parse takes one message apart. It reads each byte at most once and follows
// no pointer, so its cost is bounded by the message's length. Records beyond
// the question are checked for their outline and skipped: no option of the
// client (cookie, client subnet, padding, DO) is looked at or kept.
//
// Where q.end is set the question may be echoed, whatever the fault.
func parse(msg []byte) (q query, f fault) {
	if len(msg) < headerLen {
		return q, fault{err: ErrShort, drop: true}
	}
	flags := binary.BigEndian.Uint16(msg[2:])
	if flags&flagQR != 0 { // answering an answer is how loops are made
		return q, fault{err: ErrResponse, drop: true}
	}
	if flags&maskOpcode != 0 {
		return q, fault{err: ErrOpcode, rcode: dns.RcodeNotImplemented}
	}
	if binary.BigEndian.Uint16(msg[4:]) != 1 {
		return q, fault{err: ErrCount, rcode: dns.RcodeFormatError}
	}
	nameEnd, ok := skipQuestionName(msg)
	if !ok || nameEnd+4 > len(msg) {
		return q, fault{err: ErrName, rcode: dns.RcodeFormatError}
	}
	q.nameEnd, q.end = nameEnd, nameEnd+4
	q.qtype = binary.BigEndian.Uint16(msg[nameEnd:])
	if err := q.skipRecords(msg); err != nil {
		q.edns = false
		return q, fault{err: err, rcode: dns.RcodeFormatError}
	}
	class := binary.BigEndian.Uint16(msg[nameEnd+2:])
	switch {
	case q.edns && q.version != 0:
		return q, fault{err: ErrVersion, rcode: dns.RcodeBadVers}
	case class != dns.ClassINET:
		return q, fault{err: ErrClass, rcode: dns.RcodeRefused}
	case q.qtype == dns.TypeAXFR || q.qtype == dns.TypeIXFR:
		return q, fault{err: ErrTransfer, rcode: dns.RcodeRefused}
	}
	return q, fault{}
}

// skipRecords walks the three sections behind the question and notes the OPT
// record. A message that does not end where its records end is malformed.
func (q *query) skipRecords(msg []byte) error {
	off := q.end
	additional := int(binary.BigEndian.Uint16(msg[10:]))
	others := int(binary.BigEndian.Uint16(msg[6:])) + int(binary.BigEndian.Uint16(msg[8:]))
	for i := range others + additional {
		nameEnd, ok := skipName(msg, off)
		if !ok || nameEnd+10 > len(msg) {
			return ErrRecord
		}
		fixed := msg[nameEnd : nameEnd+10] // type, class, TTL, RDLENGTH
		if binary.BigEndian.Uint16(fixed) == dns.TypeOPT {
			if q.edns || i < others || msg[off] != 0 {
				return ErrEDNS
			}
			q.edns = true
			q.size = binary.BigEndian.Uint16(fixed[2:])
			q.version = fixed[5]
		}
		off = nameEnd + 10 + int(binary.BigEndian.Uint16(fixed[8:]))
		if off > len(msg) {
			return ErrRecord
		}
	}
	if off != len(msg) {
		return ErrRecord
	}
	return nil
}
