// Package dns is the DNS server of a sandbox: the wire protocol over UDP and
// TCP, and the virtual addresses that names are answered with.
//
// Nothing in it asks another server. A question is taken apart, handed to a
// Handler that decides, and the decision is put on the wire; bytes of a
// question go nowhere else, so a name carries nothing out.
package dns

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Transports of a Question.
const (
	TransportUDP = "udp"
	TransportTCP = "tcp"
)

const (
	// DefaultTTL is the TTL of an answer whose Handler gave none. Seconds.
	DefaultTTL = 30
	// MaxTTL is the longest TTL put on the wire. Seconds. It is short so that
	// what a sandbox caches soon follows a change of policy; a client that
	// keeps an address longer loses nothing, because a lease never changes.
	MaxTTL = 60
	// DefaultNegativeTTL is the negative TTL where the Handler gave none.
	// Seconds.
	DefaultNegativeTTL = 5
	// MaxNegativeTTL bounds how long a denial may be cached (RFC 2308), so
	// that a name allowed by a reload works soon. Seconds.
	MaxNegativeTTL = 30
	// MaxQuestionBytes is the largest message read from a sandbox. A question
	// is at most 271 bytes; the rest is room for EDNS options, which are
	// skipped.
	MaxQuestionBytes = 8192
	// MaxUDPBytes is the largest answer sent over UDP: it fits any path
	// without fragments (DNS flag day 2020). A client's smaller EDNS size is
	// honoured, a larger one is not.
	MaxUDPBytes = 1232
)

// Question is one well-formed question of a sandbox.
type Question struct {
	Name      string // as sent, presentation form, no trailing dot ("." is the root); odd bytes as \DDD (RFC 4343)
	Host      string // canonical, or "" when Bad is set
	Bad       error  // why Name is no host name
	Type      uint16
	TypeName  string // "A", "HTTPS", "TYPE65280"
	Transport string // TransportUDP or TransportTCP
	Peer      netip.AddrPort
	Resolver  netip.AddrPort // the resolver the sandbox meant to ask
}

// Answer is what a Handler decided. The zero value gives no address away: it
// is NODATA.
//
// The server holds what a Handler cannot know or might forget: addresses are
// put on the wire for A and AAAA alone, each in its own family, every other
// type is NODATA, and TTLs are bounded.
type Answer struct {
	RCode   int          // RFC 6895; above 15 only towards a client with EDNS, SERVFAIL to others
	Addrs   []netip.Addr // for RCode 0
	TTL     uint32       // seconds; 0 is the default, never "do not cache"
	EDECode uint16       // RFC 8914; sent with EDEText, and only to a client with EDNS
	EDEText string       // "" and EDECode 0: no extended error
	NoData  bool         // RCode 0 without addresses, whatever Addrs holds
	PTR     string       // host name, for a PTR question and RCode 0
	Drop    bool         // send nothing
}

// Handler decides a question. It is called by many goroutines at once, and
// the answer leaves only after it has returned: a Handler that records first
// has the record first. ctx is derived from the one the socket is served
// with, so the sandbox behind a socket may be carried in it.
type Handler func(ctx context.Context, q Question) Answer

// Malformed is a message that is no question the server can put to its
// Handler. It is reported so that each attempt has its record.
type Malformed struct {
	Err       error  // what is wrong with it; one of the Err values of this package may be in its chain
	Name      string // as in Question, or "" where it could not be read
	Type      uint16 // 0 where it could not be read
	TypeName  string // "" where it could not be read
	Transport string
	Peer      netip.AddrPort
	Resolver  netip.AddrPort
	RCode     int  // what was answered
	Dropped   bool // nothing was answered
}

// What can be wrong with a message.
var (
	ErrShort    = errors.New("message is shorter than a header")
	ErrResponse = errors.New("message is a response, not a question")
	ErrOpcode   = errors.New("opcode is not QUERY")
	ErrCount    = errors.New("message does not have exactly one question") // RFC 9619
	ErrName     = errors.New("name is malformed")                          // RFC 9267
	ErrRecord   = errors.New("record is malformed")
	ErrEDNS     = errors.New("EDNS is malformed") // RFC 6891 section 6.1
	ErrVersion  = errors.New("EDNS version is not 0")
	ErrClass    = errors.New("class is not IN")
	ErrTransfer = errors.New("zone transfer is not offered")
	ErrTooLong  = errors.New("message is too long")
	ErrSource   = errors.New("source port is 0")
	ErrBusy     = errors.New("too many TCP connections")
	ErrBroken   = errors.New("message broke off")
	ErrSilent   = errors.New("no message came over the TCP connection")
	ErrUnused   = errors.New("the TCP connection ended before its first byte") // harmless
)

// Options of a Server. Zero fields are the defaults.
type Options struct {
	// Quick is asked first about the questions that came together over UDP,
	// and decides those that need to wait for nothing but their records: as
	// with a Handler, the answers leave only after it has returned, and ctx is
	// the same. Questions of one socket wait for it; the rest has a Handler,
	// and a goroutine, for each. Nil decides none.
	Quick func(ctx context.Context, asked []Asked)
	// Workers is how many questions of one packet socket are decided apart at
	// a time (128). What arrives beyond waits in the socket's buffer, and what
	// does not fit there is lost, as UDP may be: a flood costs no memory.
	Workers int
	// MaxTCP is how many TCP connections one listener serves at a time (128).
	MaxTCP int
	// MaxTCPPeer is how many of them one source address may have (32).
	MaxTCPPeer int
	// IdleTimeout is how long a TCP client may take over one message (10 s).
	IdleTimeout time.Duration
	// Rest is how long nothing must have come for ServePackets and ServeTCP to
	// return ErrRest. They then leave the socket open: they are to be called
	// again when there is something to read. 0 is never, and so it is with
	// sockets that have no deadlines.
	Rest time.Duration
	// Malformed is called, before the answer if there is one, for each
	// message that did not become a Question. ctx is as for a Handler.
	Malformed func(ctx context.Context, m Malformed)
	// Logger is for what goes wrong with the sockets. Nil is silence.
	Logger hclog.Logger
}

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = 128
	}
	if o.MaxTCP <= 0 {
		o.MaxTCP = 128
	}
	if o.MaxTCPPeer <= 0 {
		o.MaxTCPPeer = 32
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 10 * time.Second
	}
	if o.Malformed == nil {
		o.Malformed = func(context.Context, Malformed) {}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}
