package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"

	"sallyport/audit"
)

// TestRefusedNameAndDistrust: a client that is refused and does not trust the
// authority cannot read why; the log says so, in an event that is no second
// decision.
func TestRefusedNameAndDistrust(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	c := tls.Client(l.raw(t, "api.test", o.port), &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "evil.test"})
	if err := c.Handshake(); err == nil {
		t.Fatal("the handshake completed")
	}
	e := l.await(t, "the refusal that was not read", func(e *audit.Event) bool { return e.Error != nil && e.Error.Class == audit.RejectedCA })
	if e.Phase != audit.PhaseEvent || e.Verdict != "" || e.TLS == nil || e.TLS.Alert != "bad certificate" ||
		!strings.Contains(e.Message, "could not read why it was refused: the client does not trust") {
		t.Errorf("%+v", e)
	}
	if n := len(l.events(func(x *audit.Event) bool { return x.Conn == e.Conn && x.Phase == audit.PhaseDecision })); n != 1 {
		t.Errorf("%d decisions of the connection", n)
	}
}
