package gateway

import "strings"

// plainAlertLen is the length of an alert in a record of its own, in bytes: five
// of the record, two of the alert (RFC 8446, section 6).
const plainAlertLen = 7

// distrustAlerts are the alerts by which a client says that it does not trust a
// certificate (RFC 8446, section 6.2), and their names in crypto/tls.
func distrustAlerts() map[byte]string {
	return map[byte]string{42: "bad certificate", 46: "unknown certificate", 48: "unknown certificate authority"}
}

// distrust says whether a handshake ended with an alert by which a client says
// that it does not trust a certificate, and names the alert. OpenSSL sends it
// in the clear where TLS 1.3 wants it encrypted, which crypto/tls takes for a
// broken record; last is the end of what the client sent.
func distrust(err error, last []byte) (string, bool) {
	if err == nil {
		return "", false
	}
	text := err.Error()
	for code, alert := range distrustAlerts() {
		if strings.Contains(text, "remote error: tls: "+alert) {
			return alert, true
		}
		if len(last) == plainAlertLen && last[0] == 21 && last[1] == 3 && last[3] == 0 && last[4] == 2 && last[6] == code {
			return alert, true
		}
	}
	return "", false
}

// trustHint says how the clients that break off a handshake with this alert are
// made to trust the gateway's authority. The alert is all that they say of
// themselves: OpenSSL has one for it, Go another, Java and browsers a third, and
// Node.js says nothing.
func trustHint(alert string) string {
	hint := "Node.js wants NODE_EXTRA_CA_CERTS"
	switch alert {
	case "unknown certificate authority":
		hint = "curl wants CURL_CA_BUNDLE, git GIT_SSL_CAINFO, Python SSL_CERT_FILE and REQUESTS_CA_BUNDLE, others SSL_CERT_FILE"
	case "bad certificate":
		hint = "Go programs want SSL_CERT_FILE"
	case "unknown certificate":
		hint = "Java wants the trust store truststore.p12, a browser the authority in its own store"
	}
	return hint + "; see http://" + Name + "/env.sh"
}
