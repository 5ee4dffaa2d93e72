package http1

import "net/http"

// Of says whether r is the request whose head this is, as a server read it
// from a Guard.
func (h Head) Of(r *http.Request) bool {
	method := h.Method
	if method == http.MethodConnect {
		method = http.MethodGet // the stand-in that was delivered
	}
	return r.Method == method && r.RequestURI == escapeStray(h.Target)
}
