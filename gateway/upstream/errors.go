package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"golang.org/x/net/http2"
)

// Error is why an upstream could not be reached or did not answer. Its text
// is of fixed words and, for a certificate, host names: no address, no bytes
// of the peer, nothing of the request. Unwrap gives the cause, which may hold
// an address and is for nobody but the log.
type Error struct {
	Class  string // dns, dial, timeout, upstream_tls, reset or protocol
	Detail string
	Err    error
}

// Error returns the class and the detail.
func (e *Error) Error() string { return "upstream: " + e.Class + ": " + e.Detail }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// wrap makes an *Error of err, unless it is one or a *Refusal already.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	var r *Refusal
	if errors.As(err, &e) || errors.As(err, &r) {
		return err
	}
	class, detail := ErrorClass(err)
	return &Error{Class: class, Detail: detail, Err: err}
}

// ErrorClass returns the class of an error of this package, or of one met
// while reading a response's body, and words for it that are safe to record
// and to show inside a sandbox. For nil both are empty.
func ErrorClass(err error) (class, safeDetail string) {
	if err == nil {
		return "", ""
	}
	for _, classify := range []func(error) (string, string){
		ownError, certificateError, handshakeError, resolverError, systemError, contextError, streamError,
	} {
		if class, detail := classify(err); class != "" {
			return class, detail
		}
	}
	return "protocol", "no valid answer"
}

func ownError(err error) (class, detail string) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class, e.Detail
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		return "dial", r.Message
	}
	switch {
	case errors.Is(err, errNoRoute), errors.Is(err, errWrongRoute):
		return "protocol", "request and route differ"
	case errors.Is(err, errClosed):
		return "reset", "the sandbox or the gateway has ended"
	case errors.Is(err, errSent):
		return "reset", "connection lost after the request was sent"
	}
	if _, ok := errors.AsType[*bodyError](err); ok {
		return "reset", "the request's body ended early"
	}
	return "", ""
}

func certificateError(err error) (class, detail string) {
	const tlsClass = "upstream_tls"
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return tlsClass, hostnameDetail(e)
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return tlsClass, invalidDetail(e)
	}
	if _, ok := errors.AsType[x509.InsecureAlgorithmError](err); ok || strings.Contains(err.Error(), "insecure algorithm") {
		return tlsClass, "certificate signed with an insecure algorithm"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return tlsClass, "certificate signed by unknown authority"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return tlsClass, "certificate not accepted"
	}
	return "", ""
}

// hostnameDetail says for whom a certificate is valid, if its names are few
// and plain: they are the peer's text.
func hostnameDetail(e x509.HostnameError) string {
	if len(e.Certificate.DNSNames) == 0 && len(e.Certificate.IPAddresses) == 0 {
		return "certificate has no alternative names; a common name is not enough"
	}
	if !plain(e.Host) {
		return "certificate is not valid for the host"
	}
	names := e.Certificate.DNSNames
	if len(names) == 0 || len(names) > 3 {
		return "certificate is not valid for " + e.Host
	}
	for _, n := range names {
		if !plain(strings.TrimPrefix(n, "*.")) {
			return "certificate is not valid for " + e.Host
		}
	}
	return "certificate is valid for " + strings.Join(names, ", ") + ", not " + e.Host
}

func plain(name string) bool { return validName(strings.ToLower(name)) }

func invalidDetail(e x509.CertificateInvalidError) string {
	switch e.Reason {
	case x509.Expired:
		if strings.Contains(e.Detail, "is before") {
			return "certificate is not yet valid"
		}
		return "certificate has expired"
	case x509.NotAuthorizedToSign:
		return "certificate signed by one that may not sign"
	case x509.IncompatibleUsage:
		return "certificate is not for servers"
	case x509.NameConstraintsWithoutSANs, x509.CANotAuthorizedForThisName:
		return "certificate's authority may not sign for the host"
	}
	return "certificate is not valid"
}

func handshakeError(err error) (class, detail string) {
	const tlsClass = "upstream_tls"
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return tlsClass, "the server does not speak TLS"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return tlsClass, "the server refused the handshake: " + strings.TrimPrefix(op.Err.Error(), "tls: ")
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "TLS handshake timeout"):
		return "timeout", "the TLS handshake took too long"
	case strings.Contains(text, "HTTP response to HTTPS client"):
		return tlsClass, "the server does not speak TLS"
	case strings.HasPrefix(text, "tls: server selected unsupported protocol version"):
		return tlsClass, "the server offers only TLS versions before 1.2"
	case strings.HasPrefix(text, "tls: "):
		return tlsClass, "the handshake could not be completed"
	}
	return "", ""
}

func resolverError(err error) (class, detail string) {
	d, ok := errors.AsType[*net.DNSError](err)
	switch {
	case !ok:
		return "", ""
	case d.IsNotFound:
		return "dns", "no such host"
	case d.IsTimeout:
		return "dns", "the resolver did not answer"
	}
	return "dns", "the resolver could not answer"
}

func systemError(err error) (class, detail string) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "dial", "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return "dial", "no route to host"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return "dial", "network is unreachable"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "dial", "not permitted"
	case errors.Is(err, syscall.ETIMEDOUT):
		return "timeout", "connection timed out"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNABORTED):
		return "reset", "connection reset by peer"
	case errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "reset", "connection closed"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "reset", "connection closed before the answer was complete"
	}
	return "", ""
}

func contextError(err error) (class, detail string) {
	if errors.Is(err, context.Canceled) {
		return "reset", "given up by the client"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "timeout", "timed out"
	}
	return "", ""
}

// streamError recognises what net/http says of a broken exchange. Its types
// are not exported and its texts may quote the peer, so only words of this
// list are passed on.
func streamError(err error) (class, detail string) {
	text := err.Error()
	reset := struct{ part, class, detail string }{"stream error", "reset", "the server reset the stream"}
	if e, ok := errors.AsType[http2.StreamError](err); ok && !byPeer(e) {
		reset.class, reset.detail = "protocol", "HTTP/2 protocol error"
	}
	for _, s := range []struct{ part, class, detail string }{
		{"response headers exceeded", "protocol", "response header too large"},
		{"response header list", "protocol", "response header too large"},
		{"malformed", "protocol", "malformed answer"},
		{"GOAWAY", "reset", "the server ended the HTTP/2 connection"},
		reset,
		{"client connection lost", "reset", "connection lost"},
		{"server closed idle connection", "reset", "connection closed"},
		{"connection broken", "reset", "connection broken"},
		{"timeout awaiting response headers", "timeout", "no answer in time"},
		{"connection error", "protocol", "HTTP/2 protocol error"},
	} {
		if strings.Contains(text, s.part) {
			return s.class, s.detail
		}
	}
	return "", ""
}
