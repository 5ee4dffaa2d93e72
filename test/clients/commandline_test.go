//go:build linux

package clients_test

import (
	"io"
	"net/http"
	"testing"
)

// commandLine are the clients that fetch a URL.
func commandLine() []client {
	return []client{
		{name: "curl (OpenSSL)", prints: []string{`"target":"/path"`, " 2 200"}, refusal: "sallyport: host_not_allowed", script: `
curl -V | grep -o 'OpenSSL/3' >/dev/null
curl -sS -w ' %{http_version} %{http_code}\n' https://HOST/path -H "Authorization: Bearer $API_KEY"
curl -sS https://BLOCKED/path`},
		{name: "curl (GnuTLS)", prints: []string{"GnuTLS", `200 {"proto":"HTTP/2.0"`}, refusal: "403 sallyport: host_not_allowed", script: `/usr/bin/python3 get.py`,
			files: map[string]string{"get.py": `import io, os, pycurl
print(pycurl.version)
for host in "HOST", "BLOCKED":
    body, c = io.BytesIO(), pycurl.Curl()
    c.setopt(c.URL, "https://%s/path" % host)
    c.setopt(c.WRITEDATA, body)
    if host == "HOST":
        c.setopt(c.HTTPHEADER, ["Authorization: Bearer " + os.environ["API_KEY"]])
    c.perform()
    print(c.getinfo(c.RESPONSE_CODE), body.getvalue().decode())
`}},
		{name: "wget", prints: []string{`"target":"/path"`}, refusal: "ERROR 403: Forbidden", script: `
wget -nv -O - --header="Authorization: Bearer $API_KEY" https://HOST/path
fails wget -nv -O - https://BLOCKED/path`},
		{name: "busybox wget (static)", prints: []string{`"target":"/path"`}, refusal: "403 Forbidden", script: `
busybox wget -q -O - --header "Authorization: Bearer $API_KEY" https://HOST/path
fails busybox wget -O - https://BLOCKED/path`},
		{name: "Go net/http (static)", prints: []string{"HTTP/2.0 200"}, refusal: "sallyport: host_not_allowed", script: `
"$TOOLS/probe" get https://HOST/path "Authorization: Bearer $API_KEY"
"$TOOLS/probe" get https://BLOCKED/path`},
		{name: "sentry-cli (static, musl, Rust)", prints: []string{"Sentry Server: https://HOST"}, refusal: "host_not_allowed", serve: sentry, script: `
sentry="$MODULES/@sentry/cli-linux-x64/bin/sentry-cli"
SENTRY_AUTH_TOKEN="$API_KEY" "$sentry" --url https://HOST info
fails env SENTRY_AUTH_TOKEN="$API_KEY" "$sentry" --url https://BLOCKED info --log-level debug`},
	}
}

// sentry is as much of that service as tells a client who it is.
func sentry(_ *testing.T, s *site) {
	origin(s.host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version":"0","auth":{"scopes":["org:read"]},"user":{"id":"1","email":"a@clients.test"}}`)
	}))
}
