package audit

// foldKey is what like denials have in common.
type foldKey struct {
	kind           Kind
	reason, method string // method is the protocol, the type of the question or the method of the request
	target         string // host or address
	port           uint16
	path           string // of a request
	alert, secret  string // the alert that a rule raises, the secret that it is about
}

// coarse is what different denials have in common when they are too many.
func (k foldKey) coarse() foldKey {
	k.target, k.port, k.path = "", 0, ""
	return k
}

// foldText bounds what one text of a key takes in memory.
const foldText = 256

// keyOf is what e has in common with its repeats.
func keyOf(e *Event) foldKey {
	k := foldKey{kind: e.Kind, reason: e.Reason, method: e.Proto, target: e.Host, port: e.Port, alert: e.Alert}
	if e.DNS != nil {
		k.method = e.DNS.QType
		if k.target == "" {
			k.target = e.DNS.QName
		}
	}
	if e.HTTP != nil {
		k.method, k.path = e.HTTP.Method, withoutQuery(e.HTTP.Path)
	}
	if e.Dst != nil && e.Kind == KindPacket {
		k.target, k.port = e.Dst.IP, e.Dst.Port
	}
	if len(e.Secrets) > 0 {
		k.secret = e.Secrets[0].Name
	}
	for _, s := range []*string{&k.method, &k.target, &k.path} {
		if len(*s) > foldText {
			*s = Escape(*s, foldText)
		}
	}
	return k
}

// awaited says whether somebody waits for the record of e by itself: it was
// answered with the record's ID, or it alerts.
func awaited(e *Event) bool {
	return e.Kind != KindDNS && e.Kind != KindPacket || e.Alerting()
}
