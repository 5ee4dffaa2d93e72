package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sallyport/policy"
)

// status is the HTTP status that a denial is answered with.
func status(reason policy.Reason) int {
	switch reason {
	case policy.AuthorityMismatch, policy.StaleAddress, policy.NoSNI, policy.ECHUnsupported:
		return http.StatusMisdirectedRequest
	case policy.Smuggling, policy.ProtocolError, policy.AuthorityAmbiguous, policy.BadHostname:
		return http.StatusBadRequest
	case policy.ConnectRefused:
		return http.StatusMethodNotAllowed
	case policy.BodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case policy.HeaderTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case policy.RateLimited, policy.ConnectionLimit, policy.ByteBudget:
		return http.StatusTooManyRequests
	case policy.ResolveFailed:
		return http.StatusBadGateway
	case policy.PolicyUnavailable, policy.SecretUnavailable, policy.AuditUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Reason  string `json:"reason"`
	Request string `json:"request"`
	Host    string `json:"host,omitempty"`
	Error   string `json:"error"` // the member that npm and others print
}

// reply answers with a refusal: why, and the id under which the operator
// finds the record. It says nothing of what else is allowed.
func (r *request) reply(d policy.Decision) {
	answer(r.w, r.in, refusal{Status: status(d.Reason), Reason: string(d.Reason), Detail: d.Message, Request: r.id, Host: r.c.host, Last: r.last})
}

// refusal is an answer of the gateway's own.
type refusal struct {
	Status                        int
	Reason, Detail, Request, Host string
	Last                          bool // the connection ends with it
}

// answer writes f in the form that the client of in can read.
func answer(w http.ResponseWriter, in *http.Request, f refusal) {
	h := w.Header()
	clear(h)
	h.Set("X-Sallyport-Reason", f.Reason)
	h.Set("X-Sallyport-Request", f.Request)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if f.Last || in.ProtoMajor == 1 && (f.Status == http.StatusMisdirectedRequest || f.Status == http.StatusBadRequest || f.Reason == string(policy.Revoked) || in.Header.Get("Upgrade") != "") {
		h.Set("Connection", "close") // over HTTP/2 it is GOAWAY
	}
	line := "sallyport: " + f.Reason + ": " + f.Detail + " (request " + f.Request + ")"
	if strings.HasPrefix(in.Header.Get("Content-Type"), "application/grpc") {
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", grpcStatus(f.Status))
		h.Set("Grpc-Message", grpcEscape(line))
		w.WriteHeader(http.StatusOK)
		return
	}
	body := []byte(line + "\n")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if acceptsJSON(in.Header) {
		h.Set("Content-Type", "application/problem+json")
		p := problem{Type: "about:blank", Title: http.StatusText(f.Status), Status: f.Status, Detail: f.Detail,
			Reason: f.Reason, Request: f.Request, Host: f.Host, Error: line}
		if b, err := json.Marshal(p); err == nil {
			body = append(b, '\n')
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // the client may have gone, and is owed nothing more
}

// acceptsJSON says whether the client asked for JSON by name. Command line
// clients ask for anything and print the line.
func acceptsJSON(h http.Header) bool {
	for _, v := range splitList(h["Accept"]) {
		media, _, _ := strings.Cut(v, ";")
		media = strings.ToLower(strings.TrimSpace(media))
		if media == "application/json" || strings.HasSuffix(media, "+json") {
			return true
		}
	}
	return false
}

// grpcStatus maps a refusal to a gRPC code: PERMISSION_DENIED, or UNAVAILABLE
// where trying again may help.
func grpcStatus(status int) string {
	switch status {
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return "14"
	case http.StatusTooManyRequests:
		return "8"
	}
	return "7"
}

// grpcEscape is the percent encoding of grpc-message.
func grpcEscape(s string) string { return strings.ReplaceAll(url.PathEscape(s), "%20", " ") }

func deny(reason policy.Reason, message string) *policy.Decision {
	return &policy.Decision{Reason: reason, Message: message}
}
