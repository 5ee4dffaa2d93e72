package gateway

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"

	"sallyport/policy"
)

// Numbers of SOCKS version 5 (RFC 1928) and of its user and password (RFC
// 1929).
const (
	socksMethodPassword = 2
	socksNoMethod       = 0xff
	socksPasswordV1     = 1

	socksConnect = 1
	socksBind    = 2
	socksUDP     = 3

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksOK             = 0
	socksFailure        = 1
	socksNotAllowed     = 2
	socksUnreachable    = 4
	socksRefused        = 5
	socksTTLExpired     = 6
	socksNoCommand      = 7
	socksNoAddressClass = 8
)

// serveSOCKS takes a connection whose client speaks SOCKS5. known is called
// when it is known whose it is, or that it is nobody's.
func (p *proxied) serveSOCKS(known func()) {
	methods, err := readSOCKSMethods(p)
	if err != nil {
		p.refuseSOCKS(nil, *deny(policy.ProtocolError, "SOCKS5: "+err.Error()))
		return
	}
	if !slices.Contains(methods, socksMethodPassword) {
		p.refuseSOCKS([]byte{socks5, socksNoMethod}, noCredential())
		return
	}
	if _, err := p.nc.Write([]byte{socks5, socksMethodPassword}); err != nil {
		_ = p.nc.Close() // nothing was asked
		return
	}
	user, password, err := readSOCKSPassword(p)
	if err != nil {
		p.refuseSOCKS(nil, *deny(policy.ProtocolError, "SOCKS5: "+err.Error()))
		return
	}
	sb, ok := p.owner(user, password)
	if !ok || sb == nil {
		p.refuseSOCKS([]byte{socksPasswordV1, socksFailure}, noCredential())
		return
	}
	if _, err := p.nc.Write([]byte{socksPasswordV1, socksOK}); err != nil {
		_ = p.nc.Close() // nothing was asked
		return
	}
	r, err := readSOCKSRequest(p)
	known()
	var d *policy.Decision
	switch {
	case err != nil:
		d = deny(policy.ProtocolError, "SOCKS5: "+err.Error())
	case r.command == socksUDP:
		d = deny(policy.UDPBlocked, "SOCKS5: UDP is not relayed")
	case r.command != socksConnect:
		d = deny(policy.ConnectRefused, "SOCKS5: the only command is CONNECT")
	}
	var host string
	if d == nil {
		if host, err = policy.CanonicalHost(r.host); err != nil {
			d = deny(policy.BadHostname, "SOCKS5: "+err.Error())
		}
	}
	p.open(sb, host, r.port, socksTunnel{}, d)
}

// refuseSOCKS records a denial before it is known whose the connection is,
// and answers with it.
func (p *proxied) refuseSOCKS(answer []byte, d policy.Decision) {
	p.conn(nil).refuseTunnel(p.tunnel(socksFarewell(answer)), d)
}

// socksTunnel is the answers to a request (RFC 1928, section 6). There is no
// room for a reason.
type socksTunnel struct{}

func (socksTunnel) opened() []byte { return socksReply(socksOK) }

func (socksTunnel) refused(f refusal) []byte {
	switch f.Reason {
	case string(policy.UDPBlocked), string(policy.ConnectRefused):
		return socksReply(socksNoCommand)
	case string(policy.AuditUnavailable), string(policy.PolicyUnavailable), string(policy.ProtocolError):
		return socksReply(socksFailure)
	case string(policy.ResolveFailed), "upstream_dns":
		return socksReply(socksUnreachable)
	case "upstream_timeout":
		return socksReply(socksTTLExpired)
	case "upstream_dial", "upstream_reset":
		return socksReply(socksRefused)
	}
	return socksReply(socksNotAllowed)
}

func socksReply(code byte) []byte { return []byte{socks5, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0} }

// socksFarewell is the answer that ends a negotiation.
type socksFarewell []byte

func (socksFarewell) opened() []byte           { return nil }
func (a socksFarewell) refused(refusal) []byte { return a }

// readSOCKSMethods reads the methods that a client offers (RFC 1928, section
// 3).
func readSOCKSMethods(r io.Reader) ([]byte, error) {
	b, err := readBytes(r, 2)
	switch {
	case err != nil:
		return nil, err
	case b[0] != socks5:
		return nil, errors.New("another version")
	}
	return readBytes(r, int(b[1]))
}

// readSOCKSPassword reads user and password (RFC 1929, section 2).
func readSOCKSPassword(r io.Reader) (user, password string, err error) {
	b, err := readBytes(r, 2)
	switch {
	case err != nil:
		return "", "", err
	case b[0] != socksPasswordV1:
		return "", "", errors.New("another version of the password")
	}
	u, err := readBytes(r, int(b[1]))
	if err != nil {
		return "", "", err
	}
	if b, err = readBytes(r, 1); err != nil {
		return "", "", err
	}
	w, err := readBytes(r, int(b[0]))
	return string(u), string(w), err
}

// socksRequest is what a client asks for (RFC 1928, section 4).
type socksRequest struct {
	command byte
	host    string // as sent, or an address
	port    uint16
}

func readSOCKSRequest(r io.Reader) (socksRequest, error) {
	b, err := readBytes(r, 4)
	switch {
	case err != nil:
		return socksRequest{}, err
	case b[0] != socks5:
		return socksRequest{}, errors.New("another version in the request")
	case b[2] != 0:
		return socksRequest{}, errors.New("the reserved byte is not 0")
	}
	out := socksRequest{command: b[1]}
	switch b[3] {
	case socksIPv4, socksIPv6:
		size := 4
		if b[3] == socksIPv6 {
			size = 16
		}
		a, err := readBytes(r, size)
		if err != nil {
			return socksRequest{}, err
		}
		addr, _ := netip.AddrFromSlice(a) // of 4 or 16 bytes
		out.host = addr.Unmap().String()
	case socksName:
		n, err := readBytes(r, 1)
		if err != nil {
			return socksRequest{}, err
		}
		name, err := readBytes(r, int(n[0]))
		if err != nil {
			return socksRequest{}, err
		}
		out.host = string(name)
	default:
		return socksRequest{}, errors.New("another kind of address")
	}
	if b, err = readBytes(r, 2); err != nil {
		return socksRequest{}, err
	}
	out.port = binary.BigEndian.Uint16(b)
	return out, nil
}

// readBytes reads exactly n bytes, of which there are at most 255.
func readBytes(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, errors.New("the negotiation broke off")
	}
	return b, nil
}
