package dns

import (
	"encoding/binary"
	"math"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/miekg/dns"
)

// soaNames is MNAME and RNAME of every SOA: ns.sallyport.internal and
// hostmaster.sallyport.internal, the second compressed by nothing so that the
// record may stand at any offset.
const soaNames = "\x02ns\x09sallyport\x08internal\x00" +
	"\x0ahostmaster\x09sallyport\x08internal\x00"

const (
	optLen     = 11  // an OPT record without options. Bytes.
	maxEDEText = 255 // of an extended error's text. Bytes.
	// questionName is a compression pointer to the question's name.
	questionName = 0xC000 | headerLen
)

// reply writes the answer a to message msg, which was parsed as q, into
// out[:0]. limit is the longest message the client takes, in bytes, at least
// 512. A UDP answer that would be longer comes back empty with TC set, so that
// the client asks again over TCP.
func reply(out, msg []byte, q query, a Answer, limit int, stream bool) []byte {
	rcode := a.RCode
	if rcode < 0 || rcode > 0xFFF || (rcode > 0xF && !q.edns) {
		rcode = dns.RcodeServerFailure
	}
	out = appendHeader(out[:0], msg, q, rcode)
	room := limit
	if q.edns {
		room -= optLen
	}
	head := len(out)
	truncated := false
	if q.end > 0 {
		out, truncated = appendRecords(out, msg, q, a, rcode, room)
	}
	if truncated && !stream {
		out = out[:head]
		clear(out[6:10]) // ANCOUNT, NSCOUNT
		out[2] |= flagTC >> 8
	}
	if q.edns {
		out = appendOPT(out, a, rcode, limit)
	}
	return out
}

// appendHeader writes the header and, byte for byte, the question: clients
// that mix the case of a name check that it comes back so.
func appendHeader(out, msg []byte, q query, rcode int) []byte {
	flags := binary.BigEndian.Uint16(msg[2:])
	flags = flagQR | flagRA | flags&(maskOpcode|flagRD|flagCD) | uint16(rcode&0xF)
	out = append(out, msg[0], msg[1], byte(flags>>8), byte(flags))
	if q.end == 0 {
		return append(out, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	out = append(out, 0, 1, 0, 0, 0, 0, 0, 0)
	return append(out, msg[headerLen:q.end]...)
}

// appendRecords writes the records that q and a call for, as many as fit into
// room bytes, and sets their counts.
func appendRecords(out, msg []byte, q query, a Answer, rcode, room int) (_ []byte, truncated bool) {
	answers := 0
	if rcode == dns.RcodeSuccess && !a.NoData {
		switch q.qtype {
		case dns.TypeA, dns.TypeAAAA:
			out, answers, truncated = appendAddrs(out, q.qtype, a, room)
		case dns.TypePTR:
			out, answers, truncated = appendPTR(out, a, room)
		}
	}
	binary.BigEndian.PutUint16(out[6:], uint16(answers))
	if answers > 0 || truncated || (rcode != dns.RcodeSuccess && rcode != dns.RcodeNameError) {
		return out, truncated
	}
	before := len(out)
	if out = appendSOA(out, msg, a); len(out) > room {
		return out[:before], true
	}
	binary.BigEndian.PutUint16(out[8:], 1)
	return out, false
}

func appendAddrs(out []byte, qtype uint16, a Answer, room int) (_ []byte, n int, truncated bool) {
	ttl := bounded(a.TTL, DefaultTTL, MaxTTL)
	for _, addr := range a.Addrs {
		addr = addr.Unmap()
		if !addr.IsValid() || addr.Is4() != (qtype == dns.TypeA) {
			continue
		}
		size := 12 + addr.BitLen()/8
		if len(out)+size > room || n == math.MaxUint16 {
			return out, n, true
		}
		out = appendFixed(out, qtype, ttl)
		out = appendAddr(out, addr)
		n++
	}
	return out, n, false
}

func appendAddr(out []byte, addr netip.Addr) []byte {
	if addr.Is4() {
		b := addr.As4()
		return append(append(out, 0, 4), b[:]...)
	}
	b := addr.As16()
	return append(append(out, 0, 16), b[:]...)
}

func appendPTR(out []byte, a Answer, room int) (_ []byte, n int, truncated bool) {
	if a.PTR == "" {
		return out, 0, false
	}
	var name [maxName]byte
	end, err := dns.PackDomainName(dns.Fqdn(a.PTR), name[:], 0, nil, false)
	if err != nil { // not a name: there is no data
		return out, 0, false
	}
	if len(out)+12+end > room {
		return out, 0, true
	}
	out = appendFixed(out, dns.TypePTR, bounded(a.TTL, DefaultTTL, MaxTTL))
	out = binary.BigEndian.AppendUint16(out, uint16(end))
	return append(out, name[:end]...), 1, false
}

// appendFixed writes a record of the question's own name up to its RDLENGTH.
func appendFixed(out []byte, rrtype uint16, ttl uint32) []byte {
	out = binary.BigEndian.AppendUint16(out, questionName)
	out = binary.BigEndian.AppendUint16(out, rrtype)
	out = binary.BigEndian.AppendUint16(out, dns.ClassINET)
	return binary.BigEndian.AppendUint32(out, ttl)
}

// appendSOA writes the SOA by which a negative answer may be cached (RFC 2308
// section 3). It stands at the parent of the question's name: an SOA of the
// name itself would say that the name exists.
func appendSOA(out, msg []byte, a Answer) []byte {
	first := int(msg[headerLen])
	if parent := headerLen + 1 + first; first == 0 || msg[parent] == 0 {
		out = append(out, 0)
	} else {
		out = binary.BigEndian.AppendUint16(out, 0xC000|uint16(parent))
	}
	ttl := bounded(a.TTL, DefaultNegativeTTL, MaxNegativeTTL)
	out = binary.BigEndian.AppendUint16(out, dns.TypeSOA)
	out = binary.BigEndian.AppendUint16(out, dns.ClassINET)
	out = binary.BigEndian.AppendUint32(out, ttl)
	out = binary.BigEndian.AppendUint16(out, uint16(len(soaNames)+20))
	out = append(out, soaNames...)
	for _, v := range [...]uint32{1, 3600, 600, 86400, ttl} { // serial, refresh, retry, expire, minimum
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return out
}

// appendOPT writes the server's own OPT record: nothing of the client's comes
// back in it. The extended error's text gives way where it does not fit.
func appendOPT(out []byte, a Answer, rcode, limit int) []byte {
	out[11]++ // ARCOUNT
	out = append(out, 0)
	out = binary.BigEndian.AppendUint16(out, dns.TypeOPT)
	out = binary.BigEndian.AppendUint16(out, MaxUDPBytes)
	out = append(out, byte(rcode>>4), 0, 0, 0) // extended RCODE, version 0, no flags
	const option = 6                           // code, length, INFO-CODE (RFC 8914 section 2)
	rest := limit - len(out) - 2 - option
	if (a.EDEText == "" && a.EDECode == 0) || rest < 0 {
		return append(out, 0, 0)
	}
	text := cutText(a.EDEText, min(rest, maxEDEText))
	out = binary.BigEndian.AppendUint16(out, uint16(option+len(text)))
	out = binary.BigEndian.AppendUint16(out, dns.EDNS0EDE)
	out = binary.BigEndian.AppendUint16(out, uint16(2+len(text)))
	out = binary.BigEndian.AppendUint16(out, a.EDECode)
	return append(out, text...)
}

// cutText returns at most limit bytes of s, valid UTF-8 (RFC 8914 section 2).
func cutText(s string, limit int) string {
	if len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "?")
}

// bounded returns ttl, or def for 0, and never more than most.
func bounded(ttl, def, most uint32) uint32 {
	if ttl == 0 {
		ttl = def
	}
	return min(ttl, most)
}
